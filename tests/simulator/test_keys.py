"""Who asks: API keys, modes, connected accounts, permissions."""

from __future__ import annotations

import pytest
import stripe

from onceflow_simulator import Simulator
from tests.simulator.asking import get, pay, post, refund
from tests.simulator.conftest import Connect


def test_no_key_and_bad_keys(simulator: Simulator, connect: Connect) -> None:
    without = post(simulator.url, "/v1/customers", api_key="")
    assert (without.status_code, "did not provide an API key" in without.json()["error"]["message"]) == (401, True)
    with pytest.raises(stripe.AuthenticationError) as refused:
        connect("no_key_at_all").v1.customers.create({})
    assert refused.value.http_status == 401
    assert "no_key_at_all" not in str(refused.value)


def test_a_key_as_user_name(simulator: Simulator) -> None:
    answer = get(simulator.url, "/v1/account", Authorization="Basic c2tfdGVzdF8xMjM0NTY3ODo=")
    assert answer.json()["id"] == "acct_simulator"
    assert get(simulator.url, "/v1/account", Authorization="Basic \xe9").status_code == 401


def test_a_revoked_key(simulator: Simulator, connect: Connect) -> None:
    simulator.add_key("sk_test_gone", revoked=True)
    with pytest.raises(stripe.AuthenticationError) as refused:
        pay(connect("sk_test_gone"), key="k")
    assert refused.value.error is not None
    assert refused.value.error.code == "api_key_expired"
    simulator.add_key("sk_test_gone")
    assert pay(connect("sk_test_gone"), key="k").status == "succeeded"
    assert simulator.ledger().count("charge") == 1


def test_only_known_keys_by_a_knob(simulator: Simulator, connect: Connect) -> None:
    simulator.set(strict_keys=True)
    simulator.add_key("sk_test_known")
    assert connect("sk_test_known").v1.customers.create({}).livemode is False
    with pytest.raises(stripe.AuthenticationError):
        connect("sk_test_unknown").v1.customers.create({})


def test_what_a_restricted_key_lacks_is_named(simulator: Simulator, connect: Connect) -> None:
    simulator.add_key("rk_test_narrow", permissions=["payment_intent_write", "event_read"])
    narrow = connect("rk_test_narrow")
    intent = pay(narrow)
    assert narrow.v1.payment_intents.retrieve(intent.id).id == intent.id
    assert narrow.v1.events.list({}).data
    with pytest.raises(stripe.PermissionError) as refused:
        refund(narrow, intent.id)
    assert (refused.value.http_status, refused.value.code) == (403, None)
    assert "'rak_refund_write'" in str(refused.value)
    assert "'acct_simulator'" in str(refused.value)
    assert simulator.ledger().count("refund") == 0


def test_live_and_test_never_meet(simulator: Simulator, client: stripe.StripeClient, connect: Connect) -> None:
    live = connect("sk_live_1234567890")
    intent = pay(live)
    assert intent.livemode is True
    assert client.v1.payment_intents.list({}).data == []
    with pytest.raises(stripe.InvalidRequestError):
        client.v1.payment_intents.retrieve(intent.id)
    assert [event.livemode for event in live.v1.events.list({"limit": 1}).data] == [True]
    assert simulator.ledger().entries[-1]["livemode"] is True


def test_connected_accounts_are_isolated(simulator: Simulator, client: stripe.StripeClient, connect: Connect) -> None:
    first, second = connect(account="acct_c1"), connect(account="acct_c2")
    customer = first.v1.customers.create({"email": "same@example.com"}).id
    assert second.v1.customers.list({"email": "same@example.com"}).data == []
    with pytest.raises(stripe.InvalidRequestError):
        pay(second, customer=customer)
    pay(first)
    pay(second)
    pay(client)
    counts = {group["account"]: group["count"] for group in simulator.ledger(kind="charge").report["counts"]}
    assert counts == {"acct_c1": 1, "acct_c2": 1, "acct_simulator": 1}


def test_an_account_that_was_let_go(simulator: Simulator, connect: Connect) -> None:
    simulator.connect("acct_c1", state="deauthorized")
    with pytest.raises(stripe.PermissionError) as refused:
        connect(account="acct_c1").v1.customers.list({})
    assert refused.value.error is not None
    assert refused.value.error.code == "account_invalid"
    simulator.connect("acct_c1")
    assert connect(account="acct_c1").v1.customers.list({}).data == []


def test_accounts_that_must_exist(simulator: Simulator, client: stripe.StripeClient, connect: Connect) -> None:
    simulator.set(accounts_must_exist=True)
    with pytest.raises(stripe.PermissionError):
        connect(account="acct_unknown").v1.customers.list({})
    made = client.v1.accounts.create({"email": "shop@example.com"})
    assert connect(account=made.id).v1.customers.list({}).data == []
    client.v1.accounts.delete(made.id)
    with pytest.raises(stripe.PermissionError):
        connect(account=made.id).v1.customers.list({})


def test_a_key_of_another_account(simulator: Simulator, client: stripe.StripeClient, connect: Connect) -> None:
    simulator.add_key("sk_test_second_shop", account="acct_second")
    second = connect("sk_test_second_shop")
    pay(second)
    assert second.v1.accounts.retrieve_current({}).id == "acct_second"
    assert client.v1.payment_intents.list({}).data == []
    assert simulator.ledger().entries[-1]["account"] == "acct_second"
