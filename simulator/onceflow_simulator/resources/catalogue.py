"""Resources without states of their own: products, prices, coupons and the like, as one table.

Rule: a row of the table is all that such a resource needs.
"""

from __future__ import annotations

from typing import Any

from onceflow_simulator.books import Books
from onceflow_simulator.resources.plain import Plain, add_plain
from onceflow_simulator.routes import Routes
from onceflow_simulator.validation import FROM_ZERO
from onceflow_simulator.world import Json

WITH_DELETE = ("create", "update", "delete")


def add_routes(routes: Routes) -> None:
    """Add the addresses of every resource of the table."""
    for plain in TABLE:
        add_plain(routes, plain)


def _price(books: Books, body: Json) -> None:
    recurring: dict[str, Any] | None = body.get("recurring")
    body["type"] = "one_time" if recurring is None else "recurring"
    if recurring is not None:
        recurring["interval_count"] = int(recurring.get("interval_count", 1))
    if isinstance(data := body.pop("product_data", None), dict):
        body["product"] = _product(books, data)


def _plan(books: Books, body: Json) -> None:
    if isinstance(body.get("product"), dict):
        body["product"] = _product(books, body["product"])
    _price_of(books, body)


def _price_of(books: Books, body: Json) -> None:
    """A plan is also a price, under the same id."""
    price = {
        **{name: body.get(name) for name in ("currency", "product", "livemode", "created", "metadata")},
        "id": body["id"],
        "object": "price",
        "active": True,
        "unit_amount": body.get("amount"),
        "recurring": {"interval": body.get("interval"), "interval_count": 1},
        "type": "recurring",
    }
    books.account.objects.setdefault("price", {})[body["id"]] = price
    books.emit("price.created", price)


def _product(books: Books, data: Json) -> str:
    body = books.new("product", prefix="prod", fields={"active": True, "metadata": {}, **data})
    books.emit("product.created", body)
    return str(body["id"])


def _paid_topup(books: Books, body: Json) -> None:
    books.later(1.0, lambda later: _succeed(later, body))


def _succeed(books: Books, body: Json) -> None:
    body["status"] = "succeeded"
    books.emit("topup.succeeded", body)


def _pay_out(books: Books, body: Json) -> None:
    books.record("payout", body, amount=body["amount"])


def _transfer(books: Books, body: Json) -> None:
    books.record("transfer", body, amount=body["amount"])


TABLE = (
    Plain(
        "/v1/products",
        "product",
        "prod",
        required=("name",),
        defaults={"active": True, "description": None},
        actions=WITH_DELETE,
        filters={"active": "active"},
    ),
    Plain(
        "/v1/prices",
        "price",
        "price",
        required=("currency",),
        defaults={"active": True, "recurring": None, "nickname": None},
        filters={"active": "active", "product": "product", "currency": "currency", "type": "type"},
        whole={"unit_amount": FROM_ZERO},
        made=_price,
    ),
    Plain(
        "/v1/plans",
        "plan",
        "plan",
        required=("currency", "interval"),
        defaults={"active": True},
        actions=WITH_DELETE,
        whole={"amount": FROM_ZERO},
        made=_plan,
    ),
    Plain(
        "/v1/coupons",
        "coupon",
        "co",
        defaults={"duration": "once", "valid": True},
        actions=WITH_DELETE,
        whole={"amount_off": FROM_ZERO},
    ),
    Plain("/v1/promotion_codes", "promotion_code", "promo", defaults={"active": True}, more=("coupon",)),
    Plain(
        "/v1/tax_rates",
        "tax_rate",
        "txr",
        required=("display_name", "inclusive", "percentage"),
        defaults={"active": True},
    ),
    Plain(
        "/v1/topups",
        "topup",
        "tu",
        required=("amount", "currency"),
        defaults={"status": "pending"},
        whole={"amount": FROM_ZERO},
        made=_paid_topup,
    ),
    Plain(
        "/v1/payouts",
        "payout",
        "po",
        required=("amount", "currency"),
        defaults={"status": "pending", "type": "bank_account"},
        whole={"amount": FROM_ZERO},
        made=_pay_out,
    ),
    Plain(
        "/v1/transfers",
        "transfer",
        "tr",
        required=("amount", "currency", "destination"),
        defaults={"amount_reversed": 0, "reversed": False},
        whole={"amount": FROM_ZERO},
        made=_transfer,
    ),
    Plain("/v1/payment_links", "payment_link", "plink", required=("line_items",), defaults={"active": True}),
    Plain(
        "/v1/test_helpers/test_clocks",
        "test_helpers.test_clock",
        "clock",
        required=("frozen_time",),
        defaults={"status": "ready"},
        actions=("create", "delete"),
        whole={"frozen_time": FROM_ZERO},
    ),
)
