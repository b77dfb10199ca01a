"""``[[inputs]]``: what can be read, what contradicts, and that all of it is told at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onceflow.doctor.judgements import judge_inputs
from onceflow.input_checks import require_read_topics
from onceflow.kafka_acls import acl_rules
from onceflow.service_options import processor_options
from onceflow.settings import LoadedSettings, SettingSources, environment_for_child, load_settings, read_settings
from onceflow.settings_show import shown_settings
from onceflow.topic_plan import topic_wishes
from onceflow_processor.handlers import Handlers
from onceflow_schemas.failure import Misconfigured

ACCOUNT = "acct_own"
OURS = {"topic": "stripe.events.v1"}
SIGNED = {"topic": "bus", "format": "stripe-json", "trust": "stripe-signature", "secrets": ["whsec_secret"]}
BRIDGE = {"topic": "bus", "format": "eventbridge", "trust": "transport"}


def read(*tables: Any, needs: tuple[str, ...] = (), **flags: Any) -> LoadedSettings:
    given = {"stripe.account": ACCOUNT, "inputs": list(tables), **{k.replace("__", "."): v for k, v in flags.items()}}
    sources = SettingSources(flags={name: ("--set", value) for name, value in given.items()})
    return read_settings(sources, needs=needs, environment={"ONCEFLOW_CONFIG": "/dev/null"})


def test_without_inputs_the_event_topics_carry_the_bridges_records() -> None:
    settings = load_settings(SettingSources(), environment={"ONCEFLOW_CONFIG": "/dev/null"}).settings
    assert settings.inputs == ()
    assert settings.input_topics == ("stripe.events.v1",)
    [one] = settings.all_inputs
    assert (one.format, one.effective_trust, one.effective_key) == ("onceflow", "attested", "record")


def test_the_list_is_all_that_is_read() -> None:
    loaded = read(OURS, SIGNED)
    assert loaded.faults == ()
    assert loaded.settings.input_topics == ("stripe.events.v1", "bus")
    assert [one.effective_key for one in loaded.settings.inputs] == ["record", "object"]


def test_file_environment_and_flag_each_replace_the_whole_list(tmp_path: Path) -> None:
    file = tmp_path / "onceflow.toml"
    file.write_text('[[inputs]]\ntopic = "file.one"\n[[inputs]]\ntopic = "file.two"\n')
    environment = {"ONCEFLOW_CONFIG": str(file)}
    assert read_settings(SettingSources(), environment=environment).settings.input_topics == ("file.one", "file.two")
    environment["ONCEFLOW_INPUTS"] = json.dumps([{"topic": "environment.one"}])
    assert read_settings(SettingSources(), environment=environment).settings.input_topics == ("environment.one",)
    flags = {"inputs": ("--set", '[{"topic": "flag.one"}]')}
    found = read_settings(SettingSources(flags=flags), environment=environment)
    assert found.settings.input_topics == ("flag.one",)


def test_the_environment_may_name_a_file_and_children_get_the_same(tmp_path: Path) -> None:
    secret = tmp_path / "inputs.json"
    secret.write_text(json.dumps([OURS, SIGNED]))
    environment = {"ONCEFLOW_CONFIG": "/dev/null", "ONCEFLOW_INPUTS_FILE": str(secret)}
    loaded = read_settings(SettingSources(), environment=environment)
    child = environment_for_child({}, loaded.given, overrides={})
    assert read_settings(SettingSources(), environment=child).settings.inputs == loaded.settings.inputs
    tables = read(OURS, SIGNED)
    child = environment_for_child({}, tables.given, overrides={})
    assert read_settings(SettingSources(), environment=child).settings.inputs == tables.settings.inputs


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({}, "inputs[1].topic (flag --set): is not set; a good value is stripe.events.v1"),
        ({"topic": "a b"}, "inputs[1].topic (flag --set): is not 1 to 249 letters"),
        ({"topic": ".."}, "inputs[1].topic (flag --set): is ..: no topic may be called so"),
        ({"topic": "__consumer_offsets"}, "is __consumer_offsets: no topic may be called so, or it is Kafka's own"),
        ({"topic": 5}, "inputs[1].topic (flag --set): must be a text"),
        ({**OURS, "formt": "x"}, "inputs[1].formt (flag --set): is not a setting; did you mean format?"),
        ({**OURS, "zzz": "x"}, "is not a setting; known are topic, format"),
        ({**BRIDGE, "format": "avro"}, "is 'avro', and must be one of onceflow, stripe-json, cloudevents-structured"),
        ({**BRIDGE, "trust": "none"}, "must be one of attested, stripe-signature, transport"),
        ({**BRIDGE, "key": "partition"}, "is 'partition', and must be one of record, object; a good value is object"),
        ({**BRIDGE, "mode": "prod"}, "must be one of test, live"),
        ({**BRIDGE, "accounts": []}, "must be a list of accounts; a good value is acct_"),
        (
            {**BRIDGE, "accounts": "acct_own, nonsense"},
            "is not acct_ and letters, digits, underscores (it is 'nonsense')",
        ),
        ({**BRIDGE, "default_account": "x"}, "is not acct_"),
        ({**SIGNED, "secrets": ["sk_test_secret"]}, "entry 1 begins with sk_, which is an API key"),
        ({**SIGNED, "secrets": 5}, "must be a list of whsec_"),
        ({**SIGNED, "signature_header": "a b"}, "is not a header name (it is 'a b'); a good value is Stripe-Signature"),
    ],
)
def test_what_cannot_be_read(table: dict[str, Any], text: str) -> None:
    [fault] = read(table).faults
    assert text in fault
    assert "sk_test_secret" not in fault


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("{", "is not JSON"),
        ("{}", "must be a list of tables"),
        ([5], "must be a list of tables"),
        ([], "names no topic, so nothing would ever be read"),
        ([OURS] * 33, "has 33 tables; at most 32"),
    ],
)
def test_what_is_no_list_of_tables(value: Any, text: str) -> None:
    sources = SettingSources(flags={"inputs": ("--set", value)})
    [fault] = read_settings(sources, environment={"ONCEFLOW_CONFIG": "/dev/null"}).faults
    assert text in fault
    assert "a good value is [[inputs]]" in fault


def test_a_single_table_in_the_file_is_answered_with_the_right_form(tmp_path: Path) -> None:
    file = tmp_path / "onceflow.toml"
    file.write_text('[inputs]\ntopic = "a"\n')
    [fault] = read_settings(SettingSources(config=file), environment={}).faults
    assert "write [[inputs]] above each topic" in fault
    file.write_text('[[input]]\ntopic = "a"\n')
    [fault] = read_settings(SettingSources(config=file), environment={}).faults
    assert "did you mean inputs?" in fault


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({**OURS, "trust": "transport"}, "trust is transport, and format is onceflow, whose records are attested"),
        ({**OURS, "key": "object"}, "key is set, but the bridge's records have their own key"),
        ({**OURS, "default_account": ACCOUNT}, "default_account is set, but the bridge's records"),
        ({**BRIDGE, "trust": "attested"}, "only format onceflow carries attestations; a good value is transport"),
        ({**SIGNED, "trust": "attested", "secrets": ["whsec_x"]}, "only format onceflow carries attestations"),
        ({"topic": "bus", "format": "eventbridge"}, "a good value is transport (transport believes whoever may write"),
        ({"topic": "bus", "format": "stripe-json"}, "trust is not set, and nothing in format stripe-json proves"),
        (
            {**SIGNED, "format": "eventbridge"},
            "format eventbridge does not hold the bytes that Stripe signed; a good value is transport",
        ),
        ({**SIGNED, "format": "cloudevents-structured"}, "does not hold the bytes that Stripe signed"),
        (
            {name: value for name, value in SIGNED.items() if name != "secrets"},
            "secrets is not set, so no signature could be checked; a good value is whsec_...",
        ),
        ({**BRIDGE, "secrets": ["whsec_x"]}, "secrets is set, but only trust stripe-signature looks at signatures"),
        ({**BRIDGE, "signature_header": "X"}, "signature_header is set, but only trust stripe-signature"),
        ({**BRIDGE, "mode": "live"}, "mode is live, but stripe.mode is test; a good value is test"),
        ({**BRIDGE, "accounts": [ACCOUNT, "acct_x"]}, "accounts names acct_x, which this deployment does not serve"),
        ({**BRIDGE, "default_account": "acct_x"}, "default_account is acct_x, which this deployment does not serve"),
        ({**BRIDGE, "topic": "stripe.outcomes.v1"}, "topic is stripe.outcomes.v1, which is topics.outcomes too"),
    ],
)
def test_what_contradicts(table: dict[str, Any], text: str) -> None:
    assert any(fault.startswith("inputs[1].") and text in fault for fault in read(table).faults), read(table).faults


def test_an_input_of_one_tenant_needs_a_default_among_its_accounts() -> None:
    table = {**BRIDGE, "accounts": ["acct_b"]}
    [fault] = read(table, stripe__accounts="acct_b").faults
    assert "accounts does not name acct_own, whose events those are that name no account" in fault
    assert read({**table, "default_account": "acct_b"}, stripe__accounts="acct_b").faults == ()


def test_all_faults_are_told_at_once() -> None:
    """Those of tables that cannot be read, those that contradict, and those of other sections."""
    found = read(
        {"topic": "a", "format": "avro", "trust": "?"},
        {"topic": "bus", "format": "eventbridge"},
        {**BRIDGE, "mode": "live"},
        bridge__port=-1,
    ).faults
    assert len(found) == 6
    assert sum(fault.startswith("inputs[1]") for fault in found) == 2
    assert any("inputs[3].topic is bus, which inputs[2] has too" in fault for fault in found)
    assert all("good value" in fault or "keep one" in fault for fault in found)


def test_what_can_be_read_of_a_faulty_table_is_checked_too() -> None:
    found = read({**OURS, "trsut": "transport", "secrets": ["whsec_x"], "mode": "live", "accounts": "acct_x"}).faults
    assert [fault.partition(" ")[0] for fault in found] == ["inputs[1].trsut", "inputs[1].mode", "inputs[1].accounts"]
    found = read({**BRIDGE, "format": "evntbridge", "mode": "live"}, {**BRIDGE, "secrets": ["whsec_x"]}).faults
    assert [fault.partition(" ")[0] for fault in found] == [
        "inputs[1].format",
        "inputs[1].mode",
        "inputs[2].secrets",
        "inputs[2].topic",
    ]


@pytest.mark.parametrize("inputs", [[{**OURS, "trsut": "attested"}], [{"topic": "a b"}], [{"topc": "a"}], "{", []])
def test_a_topic_is_not_called_unread_because_its_table_is_faulty(inputs: Any) -> None:
    loaded = read(inputs=inputs, topics__events="stripe.events.v1", needs=("stripe.webhook_secret",))
    named = [fault for fault in loaded.faults if "stripe.webhook_secret" not in fault]
    assert [fault.startswith("inputs") for fault in named] == [True], loaded.faults
    assert loaded.settings.input_topics in ((), ("stripe.events.v1",))
    [*_, row] = shown_settings(loaded)
    assert "stripe.events.v1 format=onceflow trust=?" in row.value or row.secret or "topic=?" in row.value
    assert not list(judge_inputs(loaded.settings))


def test_a_list_that_cannot_be_read_is_no_list_of_the_bridges_topics() -> None:
    loaded = read(inputs="{", needs=("attestation.keys",))
    assert loaded.settings.input_topics == ()
    assert not any("attestation.keys" in fault for fault in loaded.faults)


def test_one_secret_stands_for_one_account() -> None:
    """A signature says neither topic nor account: a copied event would be a second one."""
    other = {**SIGNED, "topic": "b", "default_account": "acct_b"}
    [fault] = read(SIGNED, other, stripe__accounts="acct_b").faults
    assert fault.startswith("inputs[2].secrets has a secret that is in inputs[1].secrets too")
    assert "acct_b's here and acct_own's there" in fault
    assert "whsec_secret" not in fault
    [fault] = read(OURS, other, stripe__accounts="acct_b", stripe__webhook_secret="whsec_secret").faults
    assert "is in stripe.webhook_secret too" in fault
    assert read(SIGNED, {**other, "secrets": ["whsec_b"]}, stripe__accounts="acct_b").faults == ()
    assert read(SIGNED, {**SIGNED, "topic": "b"}, stripe__webhook_secret="whsec_secret").faults == ()
    found = read({**SIGNED, "default_account": "no account"}, other, stripe__accounts="acct_b").faults
    assert [one.partition(" ")[0] for one in found] == ["inputs[1].default_account"]


def test_the_bridges_own_topic_is_not_read_as_somebody_elses() -> None:
    foreign = {**BRIDGE, **OURS}
    [fault] = read(foreign, stripe__webhook_secret="whsec_x").faults
    assert fault.startswith("inputs[1].format is eventbridge, but stripe.events.v1 is where the bridge writes")
    with pytest.raises(Misconfigured, match="where the bridge writes"):
        require_read_topics(read(foreign).settings)
    assert read(foreign).faults == ()
    assert read(OURS, BRIDGE, stripe__webhook_secret="whsec_x").faults == ()


def test_the_bridges_topic_must_be_read_where_there_is_a_bridge() -> None:
    text = "topics.events names stripe.events.v1, which no [[inputs]] reads"
    alone = read(BRIDGE)
    assert alone.faults == ()
    with pytest.raises(Misconfigured, match="which no"):
        require_read_topics(alone.settings)
    require_read_topics(read(OURS, BRIDGE).settings)
    assert any(text in fault for fault in read(BRIDGE, needs=("stripe.webhook_secret",)).faults)
    assert any("names a, which no" in fault for fault in read(BRIDGE, topics__events="a").faults)


def test_keys_of_attestations_are_needed_only_for_records_with_attestations() -> None:
    def missing(*tables: Any) -> bool:
        return any(
            "attestation.keys is not set" in fault for fault in read(*tables, needs=("attestation.keys",)).faults
        )

    assert missing(OURS, BRIDGE)
    assert not missing(BRIDGE)


def test_what_the_processor_is_told() -> None:
    key = "k=" + "s" * 43
    flags: dict[str, Any] = {"deployment__id": "d", "attestation__keys": key, "stripe__accounts": "acct_b"}
    loaded = read(OURS, {**SIGNED, "accounts": "acct_b", "default_account": "acct_b", "key": "record"}, **flags)
    assert loaded.faults == ()
    options = processor_options(loaded.settings, handlers=Handlers())
    assert options.topics == ("stripe.events.v1", "bus")
    ours, signed = options.inputs
    assert (ours.format, ours.trust, ours.accounts, ours.default_account) == ("onceflow", "attested", None, ACCOUNT)
    assert (signed.trust, signed.key, signed.accounts) == ("stripe-signature", "record", frozenset({"acct_b"}))
    assert (signed.default_account, signed.signature_header) == ("acct_b", "Stripe-Signature")
    assert [secret.secret for secret in signed.secrets] == [b"whsec_secret"]


def test_inputs_are_shown_without_their_secrets() -> None:
    rows = {row.name: row for row in shown_settings(read(OURS, SIGNED))}
    assert rows["inputs[1]"].value == "topic=stripe.events.v1 format=onceflow trust=attested key=record"
    assert rows["inputs[2]"].value.startswith("topic=bus format=stripe-json trust=stripe-signature key=object secrets=")
    assert "whsec" not in str(rows)
    default = shown_settings(read_settings(SettingSources(), environment={"ONCEFLOW_CONFIG": "/dev/null"}))
    assert default[-1][:3] == (
        "inputs[1]",
        "topic=stripe.events.v1 format=onceflow trust=attested key=record",
        "default",
    )
    broken = read({"topic": "a b", "secrets": ["whsec_hidden"]})
    assert "whsec" not in str(shown_settings(broken))


def test_the_doctor_says_what_is_believed() -> None:
    [signed, bridge] = judge_inputs(read(SIGNED, {**BRIDGE, "topic": "eb"}).settings)
    assert signed.found == "stripe-json, trust stripe-signature, key object"
    assert "whoever may write to it can forge events" in bridge.found
    [live] = judge_inputs(read(BRIDGE, stripe__mode="live").settings)
    assert "real money" in live.found


def test_rights_and_topics_are_those_of_the_inputs() -> None:
    settings = read(OURS, BRIDGE, deployment__id="d").settings
    rights = {(one.role, one.name): one.operations for one in acl_rules(settings, principals={})}
    assert rights["processor", "bus"] == ("READ", "DESCRIBE_CONFIGS")
    assert rights["operator", "bus"] == ("READ", "DESCRIBE_CONFIGS")
    assert rights["operator", "stripe.events.v1"] == ("READ", "CREATE", "ALTER_CONFIGS")
    wishes = topic_wishes(settings.topics, brokers=1, inputs=settings.input_topics)
    assert [(one.name, one.foreign) for one in wishes] == [
        ("stripe.events.v1", False),
        ("bus", True),
        ("stripe.outcomes.v1", False),
    ]
    local = topic_wishes(settings.topics, brokers=1, inputs=settings.input_topics, makes_foreign=True)
    assert not any(one.foreign for one in local)
