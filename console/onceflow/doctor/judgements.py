"""What the doctor thinks of what it found: values in, lines out.  Pure.

Rule: limits are named here; nothing here talks to anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from onceflow.doctor.checked import Checked, Part, cross, tick
from onceflow.exit_codes import SETTINGS
from onceflow.settings_model import Settings
from onceflow.topic_plan import MS_PER_DAY, TopicFound, TopicPlan
from onceflow_processor.position_report import Reported
from onceflow_processor.retention.book import Line, lateness
from onceflow_processor.retention.needs import TopicAge, decide, topic_age
from onceflow_producer.sizes import RECORD_OVERHEAD_BYTES, SizeLimits, producer_bytes
from onceflow_schemas.failure import FAILURES
from onceflow_schemas.topic_ids import shown_topic_id

CLOCK_SKEW_SECONDS_MAX = 5.0
"""More than this between two hosts is a broken time service; Stripe's signatures allow 300 s in both directions."""
RIGHTS_SHOWN_MAX = 6

_READ = ("SELECT",)
_ASKED = (
    "INSERT(id, account, mode, effect, subject, occurrence, order_key, kind, args, args_sha256, cause, steps, api_version,"
    " requested_at, window_from, restores)"
)
_CARRIED_OUT = (
    "UPDATE(state, step, external_id, lease_owner, lease_until, fence, next_attempt_at, tries, looked_up_at, action_until,"
    " conclusion, look_asked, look_at, surplus, told, last_error, result, settled_at)"
)
_DECIDED = "UPDATE(decided_at, decided_by, decision, reason)"
_QUARANTINED = (
    "UPDATE(code, detail, handler, traceback, quarantined_at, order_key, failure_group, attempts, retry_asked_at, account,"
    " mode, event_id, type, decided_at, decided_by, decision, reason, dead_lettered_at, dead_letter_code)"
)
_DECIDED_UPON = (
    "UPDATE(code, detail, handler, traceback, quarantined_at, order_key, type, failure_group, attempts, retry_asked_at,"
    " retry_asked_by, decided_at, decided_by, decision, reason)"
)
_NEEDED: Mapping[Part, Mapping[str, Sequence[str]]] = {
    "bridge": {},
    "process": {
        "schema_migrations": _READ,
        "migration_checksum": _READ,
        "deployment": ("SELECT", "INSERT", "UPDATE"),
        "progress": ("SELECT", "INSERT", "UPDATE"),
        "inbox": ("SELECT", "INSERT", "UPDATE(state, processed_at, handler_set, is_stale, ignored_because)"),
        "outcome": ("SELECT", "INSERT"),
        "outcome_contradiction": ("SELECT", "INSERT"),
        "fact": ("SELECT", "INSERT"),
        "fact_claim": ("SELECT", "INSERT"),
        "imported_fact": _READ,
        "booked": ("SELECT", "INSERT", "UPDATE"),
        "booking": ("SELECT", "INSERT", "UPDATE"),
        "quarantine": ("SELECT", "INSERT", _QUARANTINED),
        "parked_key": ("SELECT", "INSERT", "UPDATE", "DELETE"),
        "parked": ("SELECT", "INSERT", "UPDATE", "DELETE"),
        "object_guard": ("SELECT", "INSERT", "UPDATE"),
        "lane": ("SELECT", "UPDATE(head_seq)", "UPDATE(state)", "UPDATE(detail)"),
        "batch_guard": ("SELECT", "INSERT", "DELETE"),
        "suspect": ("SELECT", "INSERT", "UPDATE", "DELETE"),
        "operation": ("SELECT(id, args_sha256)", _ASKED, "SELECT(state, looked_up_at)", "UPDATE(looked_up_at)"),
        "operation_hint": ("INSERT",),
        "retention": _READ,
        "object_read": (
            "SELECT",
            "INSERT(account, mode, kind, object_id, first_path, path, api_version)",
            "UPDATE(asked_at, first_path, path, state, due_at, tries)",
        ),
    },
    "operate": {
        "schema_migrations": _READ,
        "migration_checksum": _READ,
        "deployment": ("SELECT", "INSERT", "UPDATE"),
        "account_budget": ("SELECT", "INSERT", "UPDATE"),
        "operation": (
            "SELECT",
            _ASKED,
            _CARRIED_OUT,
        ),
        "attempt": (
            "SELECT",
            "INSERT",
            "UPDATE(sent_at, settled_at, evidence, detail, http_status, request_id)",
        ),
        "review": ("SELECT", "INSERT", _DECIDED),
        "operation_hint": ("SELECT", "UPDATE(taken_at)"),
        "outcome": ("SELECT", "INSERT"),
        "outcome_contradiction": ("SELECT", "INSERT"),
        "fact": ("SELECT", "INSERT"),
        "fact_claim": ("SELECT", "INSERT"),
        "imported_fact": _READ,
        "booked": ("SELECT", "INSERT", "UPDATE"),
        "booking": ("SELECT", "INSERT", "UPDATE"),
        "lane": ("SELECT", "UPDATE(head_seq, state, detail)"),
        "batch_guard": ("SELECT", "INSERT", "DELETE"),
        "outcome_staged": ("SELECT", "DELETE"),
        "object_read": ("SELECT", "UPDATE"),
        "object_read_part": ("SELECT", "INSERT", "DELETE"),
        "parked": _READ,
        "parked_key": ("SELECT", "UPDATE(reason, due_at)"),
    },
    "relay": {
        "schema_migrations": _READ,
        "migration_checksum": _READ,
        "deployment": ("SELECT", "UPDATE(restores)"),
        "outcome": _READ,
        "lease": ("SELECT", "INSERT", "UPDATE"),
        "lane": ("SELECT", "UPDATE(published_seq)", "UPDATE(state)", "UPDATE(detail)"),
        "operation": ("SELECT(state, looked_up_at)", "UPDATE(looked_up_at)"),
        "retention": _READ,
    },
    "reconcile": {
        "schema_migrations": _READ,
        "migration_checksum": _READ,
        "deployment": ("SELECT", "INSERT", "UPDATE"),
        "inbox": _READ,
        "quarantine": _READ,
        "progress": _READ,
        "parked": _READ,
        "parked_key": _READ,
        "operation": _READ,
        "lane": _READ,
        "outcome": _READ,
        "outcome_contradiction": _READ,
        "retention": _READ,
        "audit": _READ,
        "lease": ("SELECT", "INSERT", "UPDATE"),
        "finding": ("SELECT", "INSERT", "UPDATE"),
        "remedy": ("SELECT", "INSERT"),
        "reconcile_cursor": ("SELECT", "INSERT", "UPDATE"),
        "reconcile_hour": ("SELECT", "INSERT", "UPDATE"),
        "operation_hint": ("SELECT(object_id)", "INSERT"),
    },
    "operator": {
        "schema_migrations": _READ,
        "migration_checksum": _READ,
        "progress": ("SELECT", "INSERT", "UPDATE"),
        "inbox": ("SELECT", "UPDATE(state)"),
        "quarantine": ("SELECT", "INSERT", _DECIDED_UPON),
        "parked_key": ("SELECT", "INSERT", "UPDATE", "DELETE"),
        "parked": ("SELECT", "INSERT", "UPDATE", "DELETE"),
        "outcome": ("SELECT", "UPDATE(withheld)"),
        "lease": ("SELECT", "INSERT", "UPDATE"),
        "lane": ("SELECT", "UPDATE(published_seq)", "UPDATE(topic_id)", "UPDATE(state)", "UPDATE(detail)"),
        "audit": ("INSERT",),
        "operation": (
            "SELECT",
            _ASKED,
            "UPDATE(conclusion, cancel_asked, look_asked, fence, lease_owner, lease_until, next_attempt_at, tries)",
        ),
        "attempt": _READ,
        "operation_hint": _READ,
        "review": ("SELECT", _DECIDED),
        "account_budget": ("SELECT", "UPDATE(blocked_until)"),
        "finding": ("SELECT", "UPDATE(state, decided_at, decided_by, reason)"),
        "remedy": ("SELECT", "INSERT"),
    },
}
"""What each part does in the database; ``deploy/grants.sql`` grants it, and a test holds the two together."""


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """A right on a table, or on one column of it when ``column`` is not empty."""

    table: str
    privilege: str
    column: str = ""

    def __str__(self) -> str:
        column = f" ({self.column})" if self.column else ""
        return f"{self.privilege}{column} on onceflow.{self.table}"


def rights_of(parts: Iterable[Part]) -> list[Right]:
    """Return the rights that these parts need together."""
    found = set[Right]()
    for part in parts:
        for table, texts in _NEEDED[part].items():
            for text in texts:
                privilege, _, columns = text.rstrip(")").partition("(")
                found.update(Right(table, privilege, column.strip()) for column in columns.split(","))
    return sorted(found)


def judge_rights(missing: Sequence[Right], *, role: str, parts: Sequence[Part]) -> Checked:
    """Judge the rights that the database role lacks."""
    subject = "database rights"
    if not missing:
        return tick(subject, f"{role} may do what is needed for {', '.join(parts)}")
    shown = ", ".join(str(one) for one in missing[:RIGHTS_SHOWN_MAX])
    more = f" and {len(missing) - RIGHTS_SHOWN_MAX} more" if len(missing) > RIGHTS_SHOWN_MAX else ""
    return cross(subject, f"{role} lacks {shown}{more}", fix="Run deploy/grants.sql as the role that owns the schema.")


def judge_clock(*, asked: datetime, theirs: datetime, answered: datetime) -> Checked:
    """Compare a clock with ours, which was read before and after; the time on the way counts for neither."""
    early = (asked - theirs).total_seconds()
    late = (theirs - answered).total_seconds()
    skew = max(0.0, early, late)
    word = "behind" if early > late else "ahead of"
    if skew > CLOCK_SKEW_SECONDS_MAX:
        found = f"the database's clock is {skew:.1f} s {word} ours"
        return cross("clock", found, fix="Let both hosts take their time from the same NTP servers.")
    return tick("clock", f"the database's clock differs from ours by less than {skew + 0.1:.1f} s")


def judge_deployment(row: Mapping[str, Any] | None, settings: Settings) -> Checked:
    """Compare the frozen deployment row with the settings."""
    subject, wanted = "deployment", settings.deployment
    if row is None:
        return tick(subject, "not frozen yet: the first processor to start does it")
    if (row["id"], row["mode"]) != (wanted.id, settings.stripe.mode):
        found = f"the database belongs to {row['id']} ({row['mode']}), the settings say {wanted.id} ({settings.stripe.mode})"
        return cross(subject, found, fix=FAILURES["database_other_deployment"].hint)
    restores = f", put back or promoted {row['restores']} times" if row["restores"] else ""
    return tick(subject, f"{row['id']} ({row['mode']}), accounts {', '.join(row['accounts'])}{restores}")


def judge_lanes(rows: Sequence[Mapping[str, Any]], outcome: TopicFound | None) -> Iterator[Checked]:
    """Judge the states of the lanes, and whether they belong to the outcome topic (None when nobody looked)."""
    if not rows:
        yield cross("lanes", "the database has no lanes", fix=FAILURES["lanes_missing"].hint)
        return
    fine = True
    for row in rows:
        if row["state"] != "ok":
            fine = False
            found = f"lane {row['lane']} is {row['state']}: {row['detail'] or 'no detail'}"
            yield cross("lanes", found, fix="Run `onceflow lanes show`; see docs/operating/positions.md.")
    if outcome is not None and len(rows) != outcome.partitions:
        fine = False
        found = f"{len(rows)} lanes, but {outcome.name} has {outcome.partitions} partitions"
        yield cross("lanes", found, fix="Restore the topic's partition count; lanes are fixed.")
    if fine:
        yield tick("lanes", f"{len(rows)} lanes, all ok")


def judge_retention(book: Sequence[Line]) -> Checked:
    """Judge whether the maintenance duty does its work."""
    late = lateness(book)
    if late is not None:
        found = f"the last sweep ended {late.days} days ago: tables grow"
        fix = "Look for retention_waits in the relay's log, and at onceflow_retention_failures_total; see docs/operating/retention.md."
        return cross("retention", found, fix=fix)
    inbox = next((line for line in book if line.name == "inbox"), None)
    if inbox is None:
        return tick("retention", "no marker was deleted yet")
    outcomes = sum(line.deleted for line in book if line.name.startswith("outcome/"))
    oldest = "" if inbox.oldest is None else f", the oldest marker left is {(inbox.now - inbox.oldest).days} days old"
    return tick("retention", f"{inbox.deleted} markers and {outcomes} outcomes were deleted for their age{oldest}")


def judge_positions(found: Sequence[Reported]) -> Iterator[Checked]:
    """Judge the positions of the event topics."""
    bad = [one for one in found if one.state in ("stopped", "waiting")]
    for one in bad:
        place = f"{one.row.topic}/{one.row.partition}"
        yield cross(
            "positions",
            f"{place} is {one.state} {one.code}".strip() + f": {one.meaning}",
            fix=f"Next step: {one.next_step}",
        )
    if not bad:
        lag = sum(one.lag or 0 for one in found)
        yield tick("positions", f"{sum(one.state != 'former' for one in found)} partitions, none stopped, lag {lag}")


def judge_topics(plan: TopicPlan, settings: Settings) -> Iterator[Checked]:
    """Judge the topics by what ``topics plan`` says, and retention against the horizon."""
    for one in plan.differences:
        fix = "Run `onceflow topics apply`." if one.action in ("create", "configure") else (one.note or "By hand.")
        yield cross(one.subject, f"{one.what} should be {one.wanted} and is {one.found}", fix=fix)
    differing = {one.subject for one in plan.differences}
    for name, topic in plan.found.items():
        if name not in differing:
            config = topic.config
            yield tick(
                name,
                f"id {shown_topic_id(topic.topic_id)}, {topic.partitions} partitions, {topic.replication_factor} copies,"
                f" {config.get('min.insync.replicas')} confirm, cleanup.policy={config.get('cleanup.policy')}",
            )
    for name in settings.input_topics:
        if name in plan.found:
            is_ours = name == settings.topics.events[0]
            yield _retention(plan.found[name], horizon_days=settings.processor.horizon_days, is_ours=is_ours)
    yield from _markers(plan, settings)


def _markers(plan: TopicPlan, settings: Settings) -> Iterator[Checked]:
    """Compare the settings of retention with what the topics really keep, as the relay does at its start."""
    ages = {name: _age(topic) for name, topic in plan.found.items()}
    wishes = settings.retention.wishes(horizon_days=settings.processor.horizon_days)
    events = [ages[name] for name in settings.input_topics if name in ages]
    for fault in decide(wishes, events=events, outcomes=ages.get(settings.topics.outcomes)).faults:
        found, _, good = fault.rpartition("; ")
        yield cross("retention", found, fix=good[:1].upper() + good[1:] + ".", status=SETTINGS)


def _age(topic: TopicFound) -> TopicAge:
    config = topic.config
    return topic_age(
        topic.name,
        retention_ms=int(config.get("retention.ms", "0")),
        cleanup_policy=config.get("cleanup.policy", "delete"),
    )


def judge_inputs(settings: Settings) -> Iterator[Checked]:
    """Say of each input what is believed; ``transport`` was asked for by name, so it is no cross, but never goes unsaid."""
    for one in settings.inputs:
        if one.unreadable:
            # Its faults are lines of their own, and nobody knows what would be believed.
            continue
        found = f"{one.format}, trust {one.effective_trust}, key {one.effective_key}"
        if one.effective_trust == "transport":
            live = "real money: " if settings.stripe.mode == "live" else ""
            found += f" - {live}whoever may write to it can forge events, so keep its ACLs narrow"
        yield tick(f"input {one.topic}", found)


def _retention(topic: TopicFound, *, horizon_days: int, is_ours: bool) -> Checked:
    subject, days = f"{topic.name} retention", _age(topic).days
    what, kept = "records are", "for ever" if days is None else f"{days:g} days"
    if "delete" not in topic.config.get("cleanup.policy", "delete"):
        what = "the topic is only compacted: the last record of each key is"
    found = f"{what} kept {kept}, processor.horizon_days is {horizon_days}"
    if days is not None and days < horizon_days:
        how = "`onceflow topics apply`" if is_ours else "where the topic is made, since it is not ours"
        return cross(subject, found, fix=f"Raise retention.ms to {horizon_days * MS_PER_DAY}: {how}.")
    return tick(subject, found)


def judge_limits(topic: TopicFound, *, body_bytes_max: int) -> Checked:
    """Name the smallest of the three limits on the way of an event."""
    topic_bytes = int(topic.config["max.message.bytes"]) if "max.message.bytes" in topic.config else None
    limits = SizeLimits(body_bytes_max, producer_bytes(body_bytes_max, topic_bytes), topic_bytes)
    names = {
        "body": "bridge.body_bytes_max",
        "producer": "the producer's message.max.bytes",
        "topic": "max.message.bytes",
    }
    known = "unknown" if topic_bytes is None else str(topic_bytes)
    found = (
        f"smallest is {names[limits.smallest]}: HTTP body {limits.body} (+{RECORD_OVERHEAD_BYTES} for key and headers),"
        f" producer {limits.producer}, topic {known}"
    )
    if limits.body_fits:
        return tick("size limits", found)
    needed = body_bytes_max + RECORD_OVERHEAD_BYTES
    fix = f"Raise max.message.bytes of {topic.name} to {needed}, or lower bridge.body_bytes_max to {needed - 2 * RECORD_OVERHEAD_BYTES}."
    if topic_bytes is not None:
        lower = topic_bytes - RECORD_OVERHEAD_BYTES
        fix = f"Raise max.message.bytes of {topic.name} to {needed}, or lower bridge.body_bytes_max to {lower}."
    return cross("size limits", found, fix=fix)


def judge_operations(name: str, *, kind: str, needed: Iterable[str], granted: Iterable[str] | None) -> Checked:
    """Compare the operations that Kafka grants us on a resource with those that the parts need.

    Args:
        name: of the topic or group.
        kind: ``topic`` or ``group``.
        needed: Kafka's names of operations.
        granted: what the broker says we may do; None when it does not say.
    """
    subject, wanted = f"rights on {kind} {name}", sorted(set(needed))
    if granted is None:
        return tick(subject, "the broker does not say")
    missing = [one for one in wanted if one not in granted]
    if missing:
        return cross(
            subject, f"{', '.join(missing)} is not granted", fix="Run `onceflow topics acls`, which prints the ACLs."
        )
    return tick(subject, ", ".join(wanted))
