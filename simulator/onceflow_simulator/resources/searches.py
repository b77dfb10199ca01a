"""Search: late by a knob, refused by a knob, and never proof that something is not there.

Rule: an object is found from ``search_lag_seconds`` after its creation on; there is no search of refunds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from onceflow_simulator.errors import invalid
from onceflow_simulator.listing import limit_of, text_of, value_at
from onceflow_simulator.routes import Call, Handler, Routes
from onceflow_simulator.validation import LIST, Spec
from onceflow_simulator.world import Json

KINDS = {
    "charges": "charge",
    "customers": "customer",
    "invoices": "invoice",
    "payment_intents": "payment_intent",
    "prices": "price",
    "products": "product",
    "subscriptions": "subscription",
}
_CLAUSE = re.compile(
    r"""\s*(?P<no>-)?(?P<field>[a-z_.]+)(?:\[\s*(?P<q>["'])(?P<name>.*?)(?P=q)\s*\])?\s*(?P<op>:|~|>=|<=|>|<)\s*"""
    r"""(?:(?P<r>["'])(?P<text>.*?)(?P=r)|(?P<number>-?\d+|null))""",
    re.VERBOSE,
)
_JOIN = re.compile(r"\s+(AND|OR)\s+", re.IGNORECASE)

Test = Callable[[Json], bool]


def add_routes(routes: Routes) -> None:
    """Add the addresses of every search."""
    for path, kind in KINDS.items():
        routes.get(f"/v1/{path}/search", searcher(kind), spec=Spec(required=("query",), whole=LIST.whole))


def searcher(kind: str) -> Handler:
    """A handler that searches a kind."""

    def handle(call: Call) -> Json:
        knobs = call.books.world.knobs
        if knobs.search_refused:
            raise invalid("Search is not available for this account.", status=400)
        test = parse(call.params["query"])
        newest = call.books.now - knobs.search_lag_seconds
        found = [item for item in call.books.all(kind) if item["created"] <= newest and test(item)][::-1]
        begin, limit = _page(call.params.get("page")), limit_of(call.params)
        following = begin + limit
        return {
            "object": "search_result",
            "data": found[begin:following],
            "has_more": len(found) > following,
            "next_page": f"page_{following}" if len(found) > following else None,
            "url": call.path,
        }

    return handle


def parse(query: str) -> Test:
    """The test that a query means.

    Raises:
        StripeError: 400, it is no query.
    """
    tests: list[Test] = []
    joins: set[str] = set()
    place = 0
    while True:
        clause = _CLAUSE.match(query, place)
        if clause is None:
            raise invalid(f"We were unable to parse your search query: {query}", param="query")
        tests.append(_clause(clause))
        place = clause.end()
        join = _JOIN.match(query, place)
        if join is None:
            break
        joins.add(join[1].upper())
        place = join.end()
    if query[place:].strip() or len(joins) > 1:
        raise invalid(f"We were unable to parse your search query: {query}", param="query")
    if joins == {"OR"}:
        return lambda item: any(test(item) for test in tests)
    return lambda item: all(test(item) for test in tests)


def _clause(clause: re.Match[str]) -> Test:
    wanted = clause["text"] if clause["text"] is not None else clause["number"]
    operator = clause["op"]

    def test(item: Json) -> bool:
        value = value_at(item, clause["field"])
        if clause["name"] is not None:
            value = value.get(clause["name"]) if isinstance(value, dict) else None
        return _compares(value, operator, wanted) != bool(clause["no"])

    return test


def _compares(value: Any, operator: str, wanted: str) -> bool:
    if wanted == "null":
        return value is None
    if value is None:
        return False
    if operator == ":":
        return text_of(value) == wanted
    if operator == "~":
        return wanted.lower() in str(value).lower()
    try:
        left, right = float(value), float(wanted)
    except (TypeError, ValueError):
        return False
    return {">": left > right, "<": left < right, ">=": left >= right, "<=": left <= right}[operator]


def _page(page: str | None) -> int:
    if page is None:
        return 0
    number = page.removeprefix("page_")
    if not number.isdigit():
        raise invalid("Invalid page token.", param="page")
    return int(number)
