"""Findings of a look at whole ledgers: what ``onceflow verify`` lists, and the reconciler looks for every hour.

Rule: as in ``onceflow_schemas.findings``, which takes this table in.
"""

from __future__ import annotations

from typing import Final

from onceflow_schemas.finding_kind import FindingKind

LEDGER_FINDINGS: Final = (
    FindingKind(
        "record_without_state",
        "a record that no table knows",
        "The processor's position has passed the record, and neither a marker nor a quarantined record knows it. Its event may not have been done.",
        "possible",
        "onceflow replay --topic TOPIC --event-id EVENT",
    ),
    FindingKind(
        "record_doubled",
        "one receipt that stands twice in the topic",
        "The bridge writes each receipt once; somebody else has written it again. It is done once all the same.",
        "no",
        "onceflow verify",
    ),
    FindingKind(
        "foreign_record",
        "a record that nobody vouches for",
        "It waits in an event topic without an attestation. The processor puts it into quarantine.",
        "no",
        "onceflow quarantine list --groups",
    ),
    FindingKind(
        "marker_differs",
        "a marker that is not its record's",
        "The marker's digest is not that of the record: a row or the record was changed by hand.",
        "possible",
        "onceflow verify",
    ),
    FindingKind(
        "marker_without_record",
        "a marker without its record",
        "The log has the place that the marker names, and there is another record, or none.",
        "possible",
        "onceflow verify",
    ),
    FindingKind(
        "topic_lost_records",
        "records that are gone from the end of a log",
        "Markers name offsets behind the end of the log: the broker lost records that were done. What waited there unread is brought again from "
        "Stripe's list.",
        "possible",
        "onceflow progress show",
    ),
    FindingKind(
        "range_lost",
        "records that are gone before they were read",
        "The log begins behind the position: retention, or somebody, has deleted records that nobody has read. Their events are brought again from "
        "Stripe's list where it still shows them; the position is moved by a person.",
        "yes",
        "onceflow progress show",
    ),
    FindingKind(
        "position_beyond_topic",
        "a position behind the end of its log",
        "The log ends before what was read from it: the broker lost records, or another log is in their place.",
        "possible",
        "onceflow progress show",
    ),
    FindingKind(
        "topic_not_asked",
        "an input that the settings do not name any more",
        "Positions of the topic are kept, and nobody reads it. What waits there is in no proof. Name it again, or accept this when all of it was done.",
        "possible",
        "onceflow progress show",
    ),
    FindingKind(
        "records_deleted",
        "records that are gone before their time",
        "The log begins behind records that are younger than the topic keeps them: somebody has deleted them, or its retention was raised lately. "
        "Consumers may not have seen outcomes that are gone; events can only be done again from Stripe's list.",
        "possible",
        "onceflow topics plan",
    ),
    FindingKind(
        "parked_lacks",
        "a parked event that does not wait",
        "Its marker says parked, and no parked row has it: nobody will try it.",
        "possible",
        "onceflow parked list",
    ),
    FindingKind(
        "parked_differs",
        "a parked event with other bytes",
        "What waits for its turn is not what the record of the event says: a row was changed by hand.",
        "possible",
        "onceflow parked show",
    ),
    FindingKind(
        "state_differs",
        "a marker whose state cannot be",
        "It says processed or ignored where the same handlers did otherwise with all others of its type, or it says ignored and the event has outcomes, or its record is kept for a person undecided.",
        "possible",
        "onceflow verify",
    ),
    FindingKind(
        "parked_without_marker",
        "an event that waits without its marker",
        "A parked row has it, and its marker does not say so.",
        "possible",
        "onceflow parked list",
    ),
    FindingKind(
        "quarantine_differs",
        "kept bytes that are not the record's",
        "The quarantined bytes are not those of the record.",
        "no",
        "onceflow quarantine list",
    ),
    FindingKind(
        "quarantine_lacks",
        "a quarantined record that is not kept",
        "The marker says quarantined, and the record's bytes are not kept.",
        "possible",
        "onceflow quarantine list",
    ),
    FindingKind(
        "quarantine_without_marker",
        "a kept record whose event has no marker",
        "The record was admitted and is kept in quarantine, and no marker says so: the event would run again as a new one.",
        "possible",
        "onceflow quarantine list",
    ),
    FindingKind(
        "quarantine_without_record",
        "a kept record that the log has not",
        "The quarantined record names a place of the log where there is none.",
        "no",
        "onceflow quarantine list",
    ),
    FindingKind(
        "event_differs",
        "an event that Stripe shows otherwise",
        "Stripe shows another type or time of it than the marker.",
        "possible",
        "onceflow verify",
    ),
    FindingKind(
        "event_not_listed",
        "an event that Stripe does not list",
        "A ledger has it, and Stripe's list of its time does not show it: it was forged, or belongs to another account.",
        "possible",
        "onceflow verify",
    ),
    FindingKind(
        "hour_differs",
        "an hour that differs from what Stripe listed",
        "The reconciler kept how many events Stripe listed of the hour, and a hash of their ids; the ledgers hold others now, and Stripe does not list that "
        "hour any more.",
        "possible",
        "onceflow verify --proof FILE",
    ),
    FindingKind(
        "hours_unproved",
        "hours that nobody held against Stripe's list",
        "Stripe lists 30 days. The reconciler did not keep these hours a day after their end, and no earlier proof holds them: what was lost in them can "
        "be found by nobody. Compare with Stripe's reports, and accept it.",
        "possible",
        "onceflow verify --findings",
    ),
    FindingKind(
        "outcome_not_published",
        "an outcome that is said to be published and is not",
        "The lane says so, and the topic does not have it: consumers have not seen it.",
        "possible",
        "onceflow lanes refill LANE",
    ),
    FindingKind(
        "outcome_doubled",
        "a sequence that stands twice in a lane",
        "Only the relay writes outcomes, and each once. Consumers that go by `ce_id` or by sequence are safe.",
        "possible",
        "onceflow lanes show",
    ),
    FindingKind(
        "lane_gap",
        "a sequence that is missing or out of order in a lane",
        "The topic goes on behind a gap: a record was removed, or written by somebody else.",
        "possible",
        "onceflow lanes refill LANE",
    ),
    FindingKind(
        "outcome_foreign",
        "a record of the outcome topic that is none of ours",
        "Somebody else has written to the outcome topic.",
        "possible",
        "onceflow lanes show",
    ),
    FindingKind(
        "outcome_without_row",
        "a published outcome without its row",
        "The topic has it, and the table has not: rows were deleted, or the database was put back.",
        "possible",
        "onceflow lanes show",
    ),
    FindingKind(
        "outcome_differs",
        "a published outcome that is not its row's",
        "Record and row of one sequence differ.",
        "possible",
        "onceflow lanes show",
    ),
    FindingKind(
        "lane_rows_missing",
        "rows of a lane that are missing",
        "Between the first sequence and the head there are fewer or more rows than sequences, or the head is wrong.",
        "possible",
        "onceflow lanes show",
    ),
    FindingKind(
        "published_beyond_topic",
        "a lane that says more than its topic has",
        "The topic lost its end, or the lane's row was changed. The relay rewinds, and publishes the rest again.",
        "possible",
        "onceflow lanes show",
    ),
    FindingKind(
        "published_behind_topic",
        "a topic that has more than its lane says",
        "The relay has not noted what it published, or somebody else writes to the topic.",
        "possible",
        "onceflow lanes show",
    ),
    FindingKind(
        "outcome_topic_changed",
        "an outcome topic that is another one",
        "The lanes belong to a topic of another id: it was deleted and made anew.",
        "possible",
        "onceflow lanes show",
    ),
    FindingKind(
        "object_not_listed",
        "an effect that Stripe does not show",
        "The operation has succeeded, and Stripe's list of its time does not have its object.",
        "yes",
        "onceflow operations show ID",
    ),
    FindingKind(
        "proof_differs",
        "an earlier proof that says something else",
        "An hour, a lane or a topic is not what it was when it was proved: rows were deleted or added since.",
        "possible",
        "onceflow verify --proof FILE",
    ),
    FindingKind(
        "proof_of_another",
        "a proof of another deployment",
        "The file belongs to another deployment or mode.",
        "no",
        "onceflow verify --proof FILE",
    ),
)

LEDGER_KINDS: Final = tuple(kind.name for kind in LEDGER_FINDINGS)
KINDS_OF_ONE_ROW: Final = (
    "record_without_state",
    "record_doubled",
    "marker_differs",
    "marker_without_record",
    "topic_lost_records",
    "records_deleted",
    "state_differs",
    "event_differs",
    "event_not_listed",
    "hour_differs",
    "hours_unproved",
    "outcome_not_published",
    "outcome_doubled",
    "outcome_foreign",
    "outcome_without_row",
    "outcome_differs",
    "lane_gap",
    "object_not_listed",
)
"""About something that is deleted by age itself: rows of the inbox and of lanes, records, and what Stripe lists."""
