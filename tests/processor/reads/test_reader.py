"""Reads on a real PostgreSQL against the simulator: once for all that wait, within the budget, fenced, bounded."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from onceflow_processor.reads import reader
from onceflow_processor.reads.read_store import ReadStore
from onceflow_processor.reads.stripe_reads import StripeReads
from onceflow_producer import failpoint
from onceflow_schemas.object_reads import NOT_PERMITTED_SECONDS, TRIES_MAX, ReadKind, ReadNeed
from onceflow_simulator import Simulator
from tests.processor.processor_process import wait_until
from tests.processor.reads.conftest import CONNECTED, PLATFORM, VERSION, Desk, object_need
from tests.processor.reads.stripe_side import client_of, long_invoice


def customer(simulator: Simulator, *, account: str | None = None) -> str:
    return client_of(simulator, account=account).v1.customers.create({"email": "a@example.com"}).id


def test_an_object_is_read_as_it_is_now(desk: Desk, simulator: Simulator) -> None:
    customer_id = customer(simulator)
    desk.ask(object_need(customer_id))
    assert desk.turn() == 1
    row = desk.rows()[customer_id]
    assert (row["state"], row["result"], row["lease_owner"], row["due_at"]) == ("read", "whole", None, None)
    assert json.loads(row["body"])["email"] == "a@example.com"
    assert row["asked_at"] < row["read_at"]
    # Stripe's clock, here the same machine's, is never told later than the request began.
    assert -3.0 < (row["stripe_at"] - row["read_at"]).total_seconds() < 0.0
    assert desk.turn() == 0
    assert simulator.reads(f"/v1/customers/{customer_id}") == 1


def test_a_hundred_events_of_one_object_are_one_read(desk: Desk, simulator: Simulator) -> None:
    customer_id = customer(simulator)
    for _ in range(100):
        desk.ask(object_need(customer_id))
    desk.reader().start()
    desk.wait_for(["read"])
    assert simulator.reads(f"/v1/customers/{customer_id}") == 1


def test_what_is_asked_for_while_a_read_is_on_its_way_is_read_again(desk: Desk, simulator: Simulator) -> None:
    customer_id = customer(simulator)
    desk.ask(object_need(customer_id))
    asked: list[str] = []

    def ask_in_between(place: str) -> None:
        if place == "reader.after_answer" and not asked:
            asked.append(place)
            desk.ask(object_need(customer_id))

    failpoint.install(ask_in_between)
    try:
        desk.turn()
    finally:
        failpoint.install(None)
    row = desk.rows()[customer_id]
    # The first read serves who asked before it began; the others wait for the second.
    assert (row["state"], row["body"] is not None, row["read_at"] < row["asked_at"]) == ("asked", True, True)
    desk.turn()
    row = desk.rows()[customer_id]
    assert (row["state"], row["read_at"] > row["asked_at"]) == ("read", True)
    assert simulator.reads(f"/v1/customers/{customer_id}") == 2


def test_each_version_is_a_read_of_its_own(desk: Desk, simulator: Simulator) -> None:
    """One that is asked for between two pages leaves the other's pages alone."""
    invoice = long_invoice(client_of(simulator), lines=12)
    path = f"/v1/invoices/{invoice.id}/lines?limit=10"
    asked: list[tuple[str, str | None]] = []

    class Noted(StripeReads):
        def _headers(self, need: ReadNeed, path: str) -> dict[str, str]:
            headers = super()._headers(need, path)
            asked.append((path.rpartition("?")[2].partition("&")[2][:14], headers["Stripe-Version"]))
            return headers

    reads = desk.reads()
    reads.__class__ = Noted
    first = ReadNeed(PLATFORM, "test", ReadKind.LINES, str(invoice.id), path, "2024-06-20")
    desk.ask(first)
    desk.turn(reads)
    desk.ask(replace(first, api_version=VERSION), replace(first, api_version=None))
    while desk.turn(reads):
        pass
    assert sorted(asked) == sorted(
        (page, version) for page in ("", "starting_after") for version in ("2024-06-20", VERSION, VERSION)
    )
    with desk.open() as connection:
        rows = connection.execute("SELECT api_version, result FROM onceflow.object_read ORDER BY 1").fetchall()
    assert rows == [("", "whole"), ("2024-06-20", "whole"), (VERSION, "whole")]


@pytest.mark.parametrize("broken", ["get", "judge", "settle"])
def test_a_bug_about_one_read_is_the_end_of_that_read_only(
    desk: Desk, simulator: Simulator, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    customers = [customer(simulator) for _ in range(3)]
    desk.ask(*(object_need(one) for one in customers))

    def faulty(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **more: Any) -> Any:
            if customers[0] in repr(given) and "Failed(" not in repr(given):
                raise KeyError(customers[0])
            return original(*given, **more)

        return call

    place = {"get": "StripeReads.get", "judge": "judge", "settle": "ReadStore.settle"}[broken]
    module = "onceflow_processor.reads.reader"
    owner, _, name = f"{module}.{place}".rpartition(".")
    target = {module: reader, f"{module}.StripeReads": StripeReads, f"{module}.ReadStore": ReadStore}[owner]
    monkeypatch.setattr(target, name, faulty(getattr(target, name)))
    assert desk.turn() == 3
    rows = desk.rows()
    assert [rows[one]["state"] for one in customers] == ["failed", "read", "read"]
    assert (rows[customers[0]]["code"], rows[customers[0]]["tries"]) == ("faulty", 0)


def test_a_connected_account_is_read_as_such(desk: Desk, simulator: Simulator) -> None:
    customer_id = customer(simulator, account=CONNECTED)
    desk.ask(object_need(customer_id, account=CONNECTED))
    desk.turn()
    assert desk.rows()[customer_id]["state"] == "read"
    assert simulator.reads(f"/v1/customers/{customer_id}", account=CONNECTED) == 1
    assert simulator.reads(f"/v1/customers/{customer_id}", account=PLATFORM) == 0


def test_what_is_gone_is_a_fact(desk: Desk, simulator: Simulator) -> None:
    deleted = customer(simulator)
    client_of(simulator).v1.customers.delete(deleted)
    desk.ask(object_need(deleted), object_need("cus_never"))
    desk.turn()
    rows = desk.rows()
    assert [(rows[one]["state"], rows[one]["result"]) for one in (deleted, "cus_never")] == [("read", "gone")] * 2
    assert json.loads(rows[deleted]["body"])["deleted"] is True
    assert rows["cus_never"]["body"] is None


def test_a_thin_event_and_its_object(desk: Desk, simulator: Simulator) -> None:
    client = client_of(simulator)
    customer_id = customer(simulator)
    event = client.v2.core.events.list({}).data[0].id
    desk.ask(ReadNeed(PLATFORM, "test", ReadKind.THIN_EVENT, event, f"/v2/core/events/{event}", None))
    assert (desk.turn(), desk.rows()[event]["parts"]) == (1, 1)
    assert desk.turn() == 1
    found = json.loads(desk.rows()[event]["body"])
    assert (found["event"]["id"], found["event"]["type"]) == (event, "v1.customer.created")
    assert (found["object"]["id"], found["object"]["email"]) == (customer_id, "a@example.com")


def test_all_lines_of_an_invoice(desk: Desk, simulator: Simulator) -> None:
    invoice = long_invoice(client_of(simulator), lines=237)
    path = f"/v1/invoices/{invoice.id}/lines?limit=100"
    desk.ask(ReadNeed(PLATFORM, "test", ReadKind.LINES, str(invoice.id), path, VERSION))
    desk.reader().start()
    desk.wait_for(["read"])
    lines = json.loads(desk.rows()[str(invoice.id)]["body"])
    assert (len(lines), sum(line["amount"] for line in lines)) == (237, 237_000)
    assert simulator.reads(f"/v1/invoices/{invoice.id}/lines") == 3


def test_a_list_without_end_is_bounded(desk: Desk, simulator: Simulator) -> None:
    invoice = long_invoice(client_of(simulator), lines=12)
    simulator.faults.add("repeat_page", match={"path": "/v1/invoices/{id}/lines"}, times=None)
    path = f"/v1/invoices/{invoice.id}/lines?limit=10"
    desk.ask(ReadNeed(PLATFORM, "test", ReadKind.LINES, str(invoice.id), path, VERSION))
    desk.turn()
    desk.turn()
    row = desk.rows()[str(invoice.id)]
    assert (row["state"], row["code"]) == ("asked", "unreadable")


def test_a_missing_permission_waits_and_is_named(desk: Desk, simulator: Simulator) -> None:
    customer_id = customer(simulator)
    simulator.add_key("rk_test_narrow", permissions=["charge_read"])
    desk.ask(object_need(customer_id))
    for _ in range(TRIES_MAX + 2):
        desk.make_due()
        assert desk.turn(desk.reads(api_key="rk_test_narrow")) == 1
    row = desk.rows()[customer_id]
    assert (row["state"], row["code"], row["tries"]) == ("asked", "read_not_permitted", 0)
    assert row["detail"] == "the key lacks the permission rak_customer_read"
    assert NOT_PERMITTED_SECONDS - 1 < row["due_seconds"] < NOT_PERMITTED_SECONDS * 2
    # The key works for everything else, so nothing else of the account waits for it.
    desk.ask(object_need("ch_1", kind="charges"))
    desk.turn(desk.reads(api_key="rk_test_narrow"))
    assert desk.rows()["ch_1"]["state"] == "read"
    desk.make_due()
    desk.turn()
    assert desk.rows()[customer_id]["state"] == "read"
    assert desk.value("onceflow_object_reads_total", result="not_permitted") == TRIES_MAX + 2


def test_a_refused_key_pauses_its_account_for_operations_too(desk: Desk, simulator: Simulator) -> None:
    customer_id = customer(simulator)
    simulator.add_key("sk_test_revoked", revoked=True)
    desk.ask(object_need(customer_id))
    desk.turn(desk.reads(api_key="sk_test_revoked"))
    assert desk.rows()[customer_id]["code"] == "read_not_permitted"
    assert budget(desk) == ("the key is refused", True)
    desk.change("UPDATE onceflow.object_read SET due_at = clock_timestamp()")
    assert desk.turn() == 0
    desk.make_due()
    assert desk.turn() == 1
    assert (desk.rows()[customer_id]["state"], budget(desk)) == ("read", (None, False))


def budget(desk: Desk) -> tuple[str | None, bool]:
    with desk.open() as connection:
        row = connection.execute(
            "SELECT paused_reason, coalesce(blocked_until > clock_timestamp(), false) FROM onceflow.account_budget"
            " WHERE account = %s",
            [PLATFORM],
        ).fetchone()
    assert row is not None
    return row[0], row[1]


def test_a_met_limit_is_the_accounts_and_no_failure(desk: Desk, simulator: Simulator) -> None:
    customer_id = customer(simulator)
    simulator.faults.add("rate_limited", match={"method": "GET"}, times=1, retry_after=30)
    desk.ask(object_need(customer_id), object_need("cus_other"))
    desk.turn(burst=1)
    # Both are due alike, so either may have been the one that was asked.
    [row] = [one for one in desk.rows().values() if one["code"] is not None]
    assert (row["state"], row["code"], row["tries"], row["http_status"]) == ("asked", "limited", 0, 429)
    assert 29 < row["due_seconds"] < 46
    assert desk.turn() == 0, "nothing of the account is sent before its limit allows it"
    desk.make_due()
    desk.turn()
    assert {one["state"] for one in desk.rows().values()} == {"read"}


def test_reads_keep_to_the_budget_that_they_share_with_operations(desk: Desk, simulator: Simulator) -> None:
    desk.ask(*(object_need(f"cus_{n}") for n in range(30)))
    begun = datetime.now(UTC)
    desk.reader(requests_per_second=10.0, burst=5).start()
    desk.reader(requests_per_second=10.0, burst=5).start()
    desk.wait_for(["read"])
    seconds = (datetime.now(UTC) - begun).total_seconds()
    assert seconds >= 2.4, "5 at once, then 10 a second, however many readers there are"
    assert simulator.state()["requests"] >= 30


@pytest.mark.parametrize(
    "fault", ["server_error", "lost_answer", "proxy_error", "redirect", "empty_answer", "error_in_success"]
)
def test_what_fails_is_tried_again_with_pauses(desk: Desk, simulator: Simulator, fault: str) -> None:
    customer_id = customer(simulator)
    simulator.faults.add(fault, match={"method": "GET"}, times=1)
    desk.ask(object_need(customer_id))
    desk.turn()
    row = desk.rows()[customer_id]
    assert (row["state"], row["tries"], row["lease_owner"]) == ("asked", 1, None)
    assert row["due_seconds"] <= 2.0
    desk.make_due()
    desk.turn()
    row = desk.rows()[customer_id]
    assert (row["state"], row["tries"]) == ("read", 0)


def test_what_fails_too_often_has_failed_until_it_is_asked_for_again(desk: Desk, simulator: Simulator) -> None:
    customer_id = customer(simulator)
    simulator.faults.add("server_error", match={"method": "GET"}, times=TRIES_MAX)
    desk.ask(object_need(customer_id))
    for _ in range(TRIES_MAX):
        desk.make_due()
        desk.turn()
    row = desk.rows()[customer_id]
    assert (row["state"], row["code"], row["due_at"]) == ("failed", "failing", None)
    assert row["read_at"] > row["asked_at"]
    desk.ask(object_need(customer_id))
    desk.turn()
    assert desk.rows()[customer_id]["state"] == "read"


def test_a_read_that_ends_its_worker_is_not_tried_for_ever(desk: Desk, simulator: Simulator) -> None:
    customer_id = customer(simulator)
    desk.ask(object_need(customer_id))
    desk.change("UPDATE onceflow.object_read SET tries = %s", TRIES_MAX)
    desk.turn()
    row = desk.rows()[customer_id]
    assert (row["state"], row["code"]) == ("failed", "abandoned")
    assert simulator.reads(f"/v1/customers/{customer_id}") == 0


def test_a_late_answer_is_fenced(desk: Desk, simulator: Simulator) -> None:
    customer_id = customer(simulator)
    desk.ask(object_need(customer_id))
    others: list[str] = []

    def overtake(place: str) -> None:
        if place == "reader.after_answer" and not others:
            others.append(place)
            desk.change("UPDATE onceflow.object_read SET lease_until = clock_timestamp(), due_at = clock_timestamp()")
            client_of(simulator).v1.customers.update(customer_id, {"email": "newer@example.com"})
            assert desk.turn() == 1

    failpoint.install(overtake)
    try:
        desk.turn()
    finally:
        failpoint.install(None)
    assert json.loads(desk.rows()[customer_id]["body"])["email"] == "newer@example.com"
    assert desk.value("onceflow_object_reads_total", result="fenced") == 1


def test_a_lease_of_a_clock_that_jumped_is_not_waited_for(desk: Desk, simulator: Simulator) -> None:
    customer_id = customer(simulator)
    desk.ask(object_need(customer_id))
    desk.change(
        "UPDATE onceflow.object_read SET lease_owner = 'gone', lease_until = clock_timestamp() + interval '1 year',"
        " due_at = clock_timestamp() + interval '1 year'"
    )
    assert desk.turn() == 1
    assert desk.rows()[customer_id]["state"] == "read"


def test_a_database_that_goes_away_ends_no_reader(desk: Desk, simulator: Simulator) -> None:
    customer_id = customer(simulator)
    desk.reader().start()
    wait_until(lambda: connections(desk) == 1, "the reader is connected")
    desk.change("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'reader'")
    desk.ask(object_need(customer_id))
    desk.wait_for(["read"])
    assert desk.value("onceflow_object_reads_trouble_total") >= 1


def connections(desk: Desk) -> int:
    with desk.open() as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'reader' AND datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])


def test_no_key_and_no_body_in_logs(desk: Desk, simulator: Simulator, capfd: pytest.CaptureFixture[str]) -> None:
    customer_id = customer(simulator)
    simulator.faults.add("server_error", match={"method": "GET"}, times=1)
    desk.ask(object_need(customer_id))
    desk.turn()
    desk.make_due()
    desk.turn()
    told = "".join(capfd.readouterr())
    assert "read_put_off" in told
    assert simulator.api_key not in told
    assert "a@example.com" not in told
