"""``onceflow simulate`` as a person types it, against a running simulator."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from onceflow.command_app import app
from onceflow.exit_codes import exit_code
from onceflow.settings import SettingSources, load_settings
from onceflow.settings_operations import OperationsSettings
from onceflow.simulator_target import WINDOW_SECONDS_MAX, parse_assignments, parse_duration
from onceflow_schemas.failure import Failure
from onceflow_simulator import Simulator


@pytest.fixture(scope="module")
def process() -> Iterator[Simulator]:
    with Simulator(seed=3) as running:
        yield running


@pytest.fixture
def simulator(process: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Simulator:
    """A simulator in which nothing has happened, named by a ready file of this folder."""
    process.reset()
    monkeypatch.chdir(tmp_path)
    ready = {"stripe_api_base": process.url, "stripe_api_key": process.api_key}
    (tmp_path / "ready.json").write_text(json.dumps(ready))
    return process


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["simulate", *arguments])


def objects(*arguments: str) -> list[Any]:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_trigger_and_what_happened_to_money(simulator: Simulator) -> None:
    [made] = objects("trigger", "charge.refunded", "--override", "payment_intent:amount=700")
    assert made["event"] == "charge.refunded"
    assert set(made["objects"]) == {"payment_intent", "refund"}
    [report] = objects("ledger", "--kind", "refund")
    assert [(one["count"], one["amount"]) for one in report["counts"]] == [(1, 700)]
    text = run("ledger").stdout
    assert made["objects"]["refund"] in text
    assert simulator.ledger().count("charge") == 1
    assert run("trigger", "customer.created").stdout.splitlines()[1].split()[0] == "customer"


def test_faults_by_name_and_what_fired(simulator: Simulator) -> None:
    [rule] = objects(
        "fault", "server_error", "--times", "0", "--path", "/v1/customers", "--set", "status=503", "--metadata", "a=b"
    )
    assert rule["match"] == {"method": "POST", "path": "/v1/customers", "metadata": {"a": "b"}}
    [shown] = objects("faults")
    assert [(one["id"], one["status"], one["fired"]) for one in shown["rules"]] == [(rule["id"], 503, 0)]
    done = run("trigger", "customer.created", "--add", "customer:metadata.a=b")
    assert isinstance(done.exception, Failure)
    assert done.exception.message.startswith("POST /v1/customers: 503")
    [fired] = objects("journal")
    assert (fired["fault"], fired["path"]) == ("server_error", "/v1/customers")
    assert "server_error" in run("journal").stdout
    assert "lost_answer" in run("faults").stdout
    assert objects("faults", "--clear")[0]["rules"] == []
    assert simulator.journal() != []


@pytest.mark.parametrize(
    ("arguments", "meets"),
    [
        (("lost_request",), ["POST"]),
        (("lost_request", "--method", "get"), ["GET"]),
        (("lost_request", "--method", "ANY"), ["GET", "POST"]),
        (("empty_page",), ["GET"]),
    ],
)
def test_a_fault_meets_what_acts_and_look_ups_only_when_asked_for(
    simulator: Simulator, arguments: tuple[str, ...], meets: list[str]
) -> None:
    assert run("fault", *arguments, "--times", "0", "--path", "/v1/refunds").exit_code == 0
    for method in ("GET", "POST"):
        call = urllib.request.Request(
            f"{simulator.url}/v1/refunds",
            b"payment_intent=pi_1" if method == "POST" else None,
            {"Authorization": f"Bearer {simulator.api_key}"},
            method=method,
        )
        with suppress(OSError):
            urllib.request.urlopen(call, timeout=10).close()
    assert [one["method"] for one in simulator.journal()] == meets


def test_answers_that_a_fault_spoiled_are_told_as_such(simulator: Simulator) -> None:
    told = {
        "proxy_error": "POST /v1/customers: 502 an answer that is none of Stripe's",
        "server_error": "POST /v1/customers: 500 ",
        "empty_answer": "POST /v1/customers: an answer that cannot be read",
        "lost_answer": "does not answer: ",
    }
    for name, words in told.items():
        assert run("fault", name).exit_code == 0
        failure = run("trigger", "customer.created").exception
        assert isinstance(failure, Failure), name
        assert words in failure.message
        assert "{" not in failure.message
    truncated = run("fault", "lost_answer", "--set", "reply=truncated")
    assert truncated.exit_code == 0
    failure = run("trigger", "customer.created").exception
    assert isinstance(failure, Failure)
    assert failure.message == "POST /v1/customers: an answer that cannot be read"
    assert simulator.state()["bugs"] == []


def test_the_clock(simulator: Simulator) -> None:
    [before] = objects("clock", "--stop")
    [after] = objects("clock", "--advance", "25h", "--anyway")
    assert (after["mode"], round(after["now"] - before["now"])) == ("fixed", 90_000)
    assert objects("clock", "--run")[0]["mode"] == "real"
    assert objects("clock")[0]["mode"] == "real"
    assert simulator.state()["mode"] == "real"


def test_no_key_ends_inside_the_safe_window_unless_that_is_wanted(simulator: Simulator) -> None:
    """Keys age by the simulator's clock, the window (23 hours at most) by the database's."""
    assert objects("clock", "--advance", "40m")[0]["advanced_seconds"] == 2_400
    refused = [("clock", "--advance", "25h"), ("clock", "--advance", "40m"), ("knobs", "--set", "key_life_seconds=60")]
    for arguments in refused:
        failure = run(*arguments).exception
        assert isinstance(failure, Failure), arguments
        assert (failure.code, exit_code(failure)) == ("simulator_refused", 1)
        assert "act twice" in failure.message
        assert "--anyway" in failure.hint
        assert "happened_at=" in failure.hint
    assert simulator.call("GET", "/clock")["advanced_seconds"] == 2_400
    assert simulator.call("GET", "/knobs")["key_life_seconds"] == 86_400
    assert run("clock", "--advance", "20m").stderr == ""
    for arguments in refused:
        done = run(*arguments, "--anyway", "--json")
        assert done.exit_code == 0
        assert done.stderr.startswith("warning: the simulator would keep keys for ")
        assert len(done.stdout.splitlines()) == 1
    assert simulator.call("GET", "/knobs")["key_life_seconds"] == 60


def test_the_longest_window_is_that_of_the_settings() -> None:
    hours = [
        limit.le for limit in OperationsSettings.model_fields["safe_window_hours"].metadata if hasattr(limit, "le")
    ]
    assert [hour * 3_600 for hour in hours] == [WINDOW_SECONDS_MAX]


def test_the_settings_take_the_simulators_own_key(simulator: Simulator) -> None:
    settings = load_settings(SettingSources(), environment={"STRIPE_API_KEY": simulator.api_key}).settings
    assert settings.stripe.api_key is not None
    assert settings.stripe.api_key.get_secret_value() == simulator.api_key


def test_webhooks_knobs_and_acts(simulator: Simulator) -> None:
    simulator.add_webhook("http://127.0.0.1:9/", secrets=["whsec_CANARY"], retries_max=0)
    [endpoint] = objects("webhooks", "--set", "duplicate=0.5", "--set", "types=[]")
    assert (endpoint["duplicate"], endpoint["types"], endpoint["secrets"]) == (0.5, [], ["***"])
    assert "CANARY" not in run("webhooks").output
    assert objects("webhooks", "--deliveries") == []
    assert objects("knobs", "--set", "latency_ms=1")[0]["latency_ms"] == 1
    shown = run("knobs").stdout
    assert "latency_ms" in shown
    assert not set("{}[]") & set(shown), "for people"
    [made] = objects("trigger", "payment_intent.processing")
    [settled] = objects("act", "settle", made["objects"]["payment_intent"])
    assert settled["status"] == "succeeded"


@pytest.mark.parametrize(
    ("arguments", "code", "status"),
    [
        (("fault", "lost"), "simulator_refused", 1),
        (("fault", "slow", "--set", "colour=red"), "simulator_refused", 1),
        (("ledger", "--kind", "nonsense"), "simulator_refused", 1),
        (("webhooks", "--set", "drop=7"), "simulator_refused", 1),
        (("trigger", "charge.lost"), "simulator_refused", 1),
        (("act", "settle", "pi_nobody"), "simulator_refused", 1),
        (("knobs", "--set", "latency=1"), "simulator_refused", 1),
        (("ledger", "--url", "http://127.0.0.1:1"), "service_failed", 5),
        (("ledger", "--url", "127.0.0.1"), "settings_invalid", 3),
        (("ledger", "--ready-file", "other.json"), "settings_invalid", 3),
        (("ledger", "--ready-file", "notes.txt"), "settings_invalid", 3),
    ],
)
def test_what_cannot_be(simulator: Simulator, arguments: tuple[str, ...], code: str, status: int) -> None:
    simulator.add_webhook("http://127.0.0.1:9/", secrets=["whsec_1"], retries_max=0)
    Path("notes.txt").write_text("anything")
    failure = run(*arguments).exception
    assert isinstance(failure, Failure)
    assert (failure.code, exit_code(failure)) == (code, status)
    assert not set('{}"') & set(failure.message), "a sentence, and not what a library made of it"
    assert failure.hint
    assert simulator.state()["bugs"] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("clock", "--advance", "soon"),
        ("clock", "--stop", "--run"),
        ("fault", "lost_answer", "--set", "status"),
        ("fault", "lost_answer", "--method", "PSOT"),
    ],
)
def test_what_is_typed_wrong(simulator: Simulator, arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2
    assert simulator.call("GET", "/faults")["rules"] == []


def test_an_up_without_a_simulator_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    failure = run("journal").exception
    assert isinstance(failure, Failure)
    assert "there is no ready file" in failure.message
    (tmp_path / ".onceflow").mkdir()
    (tmp_path / ".onceflow" / "ready.json").write_text("{}")
    failure = run("journal").exception
    assert isinstance(failure, Failure)
    assert "was started with --no-simulator" in failure.message


def test_times_and_assignments() -> None:
    assert [parse_duration(text) for text in ("90", "1.5s", "15m", "25h", "3d")] == [90, 1.5, 900, 90_000, 259_200]
    assert parse_assignments(["a=1", "b=x", 'c={"d": null}', "e="]) == {"a": 1, "b": "x", "c": {"d": None}, "e": ""}
    for wrong in ("soon", "", "-1s"):
        with pytest.raises(ValueError, match="is no time"):
            parse_duration(wrong)
    with pytest.raises(ValueError, match="is not NAME=VALUE"):
        parse_assignments(["=1"])
