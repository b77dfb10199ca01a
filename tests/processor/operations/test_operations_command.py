"""``onceflow operations`` as a person types it: tables, lines of JSON, dry runs, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from onceflow.command_app import app
from onceflow_schemas.failure import Failure
from onceflow_schemas.operations.calls import HttpCall, Mail
from onceflow_schemas.operations.evidence import Proof
from tests.processor.operations.conftest import Desk, Scripted, says
from tests.processor.processor_process import wait_until

ABSENT_ID = "00000000-0000-5000-8000-000000000001"


@pytest.fixture
def reviewed(desk: Desk) -> str:
    """One in review; another that waits."""
    [first, _] = desk.ask("in_1", "in_2", order_key="customer-1")
    with desk.working(Scripted(says(Proof.STRANGE, detail="another amount", http_status=200, request_id="req_9"))):
        desk.wait_for(in_1="review")
    return first


def run(desk: Desk, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["operations", *arguments], env={"DATABASE_URL": desk.url})


def lines(desk: Desk, *arguments: str) -> list[dict[str, Any]]:
    done = run(desk, *arguments, "--json")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_list_in_pages(desk: Desk, reviewed: str) -> None:
    [second, first] = lines(desk, "list")
    assert (first["id"], first["state"], first["review_code"]) == (reviewed, "review", "answer_strange")
    assert (second["subject"], second["order_key"], second["attempts"]) == ("in_2", "customer-1", 0)
    assert lines(desk, "list", "--state", "review", "--effect", "refund") == [first]
    assert lines(desk, "list", "--open", "--subject", "in_2") == [second]
    assert lines(desk, "list", "--limit", "1") == [second]
    assert lines(desk, "list", "--before", str(second["seq"])) == [first]
    shown = run(desk, "list", "--limit", "1")
    assert shown.stdout.splitlines()[0].split()[:5] == ["number", "id", "state", "effect", "subject"]
    assert f"there are more: --before {second['seq']}" in shown.stderr
    assert run(desk, "list", "--state", "lost").exit_code == 2


def test_one_is_told_whole(desk: Desk, reviewed: str) -> None:
    [one] = lines(desk, "show", reviewed)
    assert (one["cause"], one["args"], one["decisions"]) == ("app:test", {"amount": 500, "charge": "ch_1"}, ["resolve"])
    [attempt], [review], [step] = one["attempts"], one["reviews"], one["steps"]
    assert (attempt["evidence"], attempt["request_id"], attempt["http_status"]) == ("strange", "req_9", 200)
    assert (review["code"], review["detail"]) == ("answer_strange", "another amount")
    metadata = step["request"]["params"]["metadata"]
    assert (metadata["onceflow_operation"], list(metadata)) == (reviewed, ["onceflow_operation", "onceflow_deployment"])
    assert one["why"].startswith("Only a person may decide (answer_strange)")
    text = run(desk, "show", reviewed).stdout
    for said in ("app:test", "Frozen calls", "POST /v1/refunds", "Attempts", "req_9", "Reviews", one["why"]):
        assert said in text, said
    assert "You may decide: `onceflow operations resolve`" in text


def test_texts_and_secrets_are_not_shown(desk: Desk) -> None:
    @desk.handlers.effect("tell")
    def tell(order: str) -> Mail:
        return Mail(sender="shop@example.com", to="ada@example.com", subject=order, text="private")

    @desk.handlers.effect("take")
    def take(item: str) -> HttpCall:
        return HttpCall(url="https://stock.example.com/take?token=CANARY", json={"item": item, "why": "private"})

    [mail] = desk.ask("o-1", effect=tell, order="o-1")
    [call] = desk.ask("o-2", effect=take, item="sk_test_CANARY")
    for one in (mail, call):
        for done in (run(desk, "show", one), run(desk, "show", one, "--json")):
            assert done.exit_code == 0
            assert "private" not in done.output
            assert "CANARY" not in done.output
    [shown] = lines(desk, "show", mail)
    assert shown["steps"][0]["request"]["text"] == "7 characters"


def test_what_a_call_lacks_is_told(desk: Desk) -> None:
    """A credential of the workers' settings, which the frozen call only names."""

    @desk.handlers.effect("tell_partner")
    def tell_partner(order: str) -> HttpCall:
        return HttpCall(url="https://partner.example.org/orders", json={"order": order}, credential="partner")

    [one] = desk.ask("o-1", effect=tell_partner, order="o-1")
    with desk.working(
        Scripted(says(Proof.UNAUTHORISED, code="no_credential", detail="the credential partner is not set"))
    ):
        wait_until(lambda: desk.operations()["o-1"]["tries"], "it was tried")
    [shown] = lines(desk, "show", one)
    assert shown["state"] == "requested"
    assert shown["why"].startswith(
        "Nothing of the call is known to have been sent (no_credential: the credential partner is not set). Next the call is sent"
    )
    assert [one["reason"] for one in lines(desk, "accounts")] == [None], (
        "it is no reason to pause the account's calls to Stripe"
    )


def test_a_decision_is_a_dry_run_until_it_is_executed(desk: Desk, reviewed: str) -> None:
    [dry] = lines(desk, "resolve", reviewed, "--failed", "--reason", "not in the dashboard")
    assert (dry["executed"], dry["state"], dry["decision"]) == (False, "review", "resolve")
    assert desk.rows("SELECT FROM onceflow.audit") == []
    text = run(desk, "resolve", reviewed, "--failed", "--reason", "not in the dashboard").stdout
    assert text.endswith("dry run: nothing was changed; add --execute\n")
    [done] = lines(desk, "resolve", reviewed, "--failed", "--reason", "not in the dashboard", "--execute")
    assert done["executed"]
    with desk.working(Scripted()):
        desk.wait_for(in_1="failed", in_2="succeeded")
    [again] = lines(desk, "retry", reviewed, "--reason", "the card was changed", "--execute")
    assert lines(desk, "list", "--state", "requested")[0]["id"] == again["again"]
    [canceled] = lines(desk, "cancel", again["again"], "--reason", "changed our mind", "--execute")
    assert canceled["decision"] == "cancel"
    actions = [one["action"] for one in desk.rows("SELECT action FROM onceflow.audit ORDER BY id")]
    assert actions == ["operation_resolve", "operation_retry", "operation_cancel"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("resolve", ABSENT_ID, "--reason", "x"),
        ("resolve", ABSENT_ID, "--failed", "--succeeded", "--reason", "x"),
        ("resolve", ABSENT_ID, "--failed"),
        ("retry", ABSENT_ID, "--reason", " "),
        ("cancel", "no-id", "--reason", "x"),
        ("accounts", "--go-on", "acct_test"),
    ],
)
def test_what_is_typed_wrong(desk: Desk, arguments: tuple[str, ...]) -> None:
    assert run(desk, *arguments).exit_code == 2


def test_what_is_refused_ends_with_1(desk: Desk, reviewed: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "onceflow", "operations", "cancel", reviewed, "--reason", "x", "--execute", "--json"],
        env={**os.environ, "DATABASE_URL": desk.url}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (1, "ruling_refused")
    missing = run(desk, "show", ABSENT_ID)
    assert isinstance(missing.exception, Failure)
    assert missing.exception.code == "operation_missing"


def test_accounts(desk: Desk) -> None:
    desk.ask("in_1")
    with desk.working(Scripted(says(Proof.UNAUTHORISED, detail="401 Invalid API Key sk_test_CANARY"))):
        desk.wait_for(in_1="requested")
        wait_until(lambda: [one for one in lines(desk, "accounts") if one["reason"]], "the account is paused")
    found = lines(desk, "accounts")
    assert found[0]["reason"] == "401 Invalid API Key sk_test_***"
    assert "CANARY" not in run(desk, "accounts").stdout
    [after] = lines(desk, "accounts", "--go-on", "acct_test", "--reason", "the key was mended")
    assert after["blocked_until"] is None
