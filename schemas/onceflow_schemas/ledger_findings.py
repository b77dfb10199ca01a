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
        "Replay that record: `onceflow replay` of its event does it once, and does nothing where it was done. Then find out who "
        "deleted the row (the database's log, a restore).",
    ),
    FindingKind(
        "record_doubled",
        "one receipt that stands twice in the topic",
        "The bridge writes each receipt once; somebody else has written it again. It is done once all the same.",
        "no",
        "onceflow verify",
        "Find out who else writes to the topic, and take that right away (docs/operating/clusters.md). Nothing was done twice; accept "
        "the finding.",
    ),
    FindingKind(
        "foreign_record",
        "a record that nobody vouches for",
        "It waits in an event topic without an attestation. The processor puts it into quarantine.",
        "no",
        "onceflow quarantine list --groups",
        "Find out who writes to the topic without the bridge, and take that right away. The record ends in quarantine; decide about it"
        " there.",
    ),
    FindingKind(
        "marker_differs",
        "a marker that is not its record's",
        "The marker's digest is not that of the record: a row or the record was changed by hand.",
        "possible",
        "onceflow verify",
        "Compare the marker with a backup of the database, and the record with Stripe's event. Put right what was changed by hand, or "
        "accept the finding.",
    ),
    FindingKind(
        "marker_without_record",
        "a marker without its record",
        "The log has the place that the marker names, and there is another record, or none.",
        "possible",
        "onceflow verify",
        "Compare the marker with a backup of the database. Where the topic lost the record, nothing was lost for the handlers: it was "
        "done. Accept the finding.",
    ),
    FindingKind(
        "topic_lost_records",
        "records that are gone from the end of a log",
        "Markers name offsets behind the end of the log: the broker lost records that were done. What waited there unread is brought again from "
        "Stripe's list.",
        "possible",
        "onceflow progress show",
        "Look at the broker's disks and its settings for unclean elections. Events that were read stay done; wait until no "
        "`missed_event` is open, then accept the finding.",
    ),
    FindingKind(
        "range_lost",
        "records that are gone before they were read",
        "The log begins behind the position: retention, or somebody, has deleted records that nobody has read. Their events are brought again from "
        "Stripe's list where it still shows them; the position is moved by a person.",
        "yes",
        "onceflow progress show",
        "Move the position with `onceflow progress set --accept-loss` (docs/operating/positions.md); Stripe's list is read again from "
        "before the loss. Raise the topic's retention.",
    ),
    FindingKind(
        "position_beyond_topic",
        "a position behind the end of its log",
        "The log ends before what was read from it: the broker lost records, or another log is in their place.",
        "possible",
        "onceflow progress show",
        "Find out whether the log was put back or made anew; `onceflow progress set` moves the position, and Stripe's list is read "
        "again from before the loss.",
    ),
    FindingKind(
        "position_differs",
        "a position whose fingerprint is not its record's",
        "The log holds another record before the position than the one that was read last: the database or the topic was put back, or a row was changed by hand.",
        "possible",
        "onceflow progress show",
        "Find out which of both was put back; a processor that starts there stops with a code, and docs/operating/positions.md says what may be decided.",
    ),
    FindingKind(
        "retention_differs",
        "a book of retention that says too much",
        "Nothing younger than 32 days is deleted by age, and the row in `onceflow.retention` says so of younger rows: it was changed by hand, and would "
        "explain the loss of whatever is missing.",
        "possible",
        "onceflow verify",
        "Compare the row and the tables with a backup of the database, put back what is missing, and set `gone_before` to what it was.",
    ),
    FindingKind(
        "topic_not_asked",
        "an input that the settings do not name any more",
        "Positions of the topic are kept, and nobody reads it. What waits there is in no proof. Name it again, or accept this when all of it was done.",
        "possible",
        "onceflow progress show",
        "Name the topic in the settings again until all of it was read, or accept the finding.",
    ),
    FindingKind(
        "records_deleted",
        "records that are gone before their time",
        "The log begins behind records that are younger than the topic keeps them: somebody has deleted them, or its retention was raised lately. "
        "Consumers may not have seen outcomes that are gone; events can only be done again from Stripe's list.",
        "possible",
        "onceflow topics plan",
        "Find out who deleted them (`delete-records`, a lowered and raised retention). Consumers that had not read those outcomes need"
        " them from `onceflow.outcome`. Then accept the finding.",
    ),
    FindingKind(
        "parked_lacks",
        "a parked event that does not wait",
        "Its marker says parked, and no parked row has it: nobody will try it.",
        "possible",
        "onceflow parked list",
        "Replay the event: `onceflow replay` of its record. Then find out who deleted the row.",
    ),
    FindingKind(
        "parked_differs",
        "a parked event with other bytes",
        "What waits for its turn is not what the record of the event says: a row was changed by hand.",
        "possible",
        "onceflow parked show",
        "Compare the row with the record (`onceflow replay` shows it) and with Stripe's event; put the row right before it is tried, "
        "or skip it with a reason.",
    ),
    FindingKind(
        "state_differs",
        "a marker whose state cannot be",
        "It says processed or ignored where the same handlers did otherwise with all others of its type, or it says ignored and the event has outcomes, or its record is kept for a person undecided.",
        "possible",
        "onceflow verify",
        "Compare the marker with a backup, and what its handlers wrote. Where the event was not done, `onceflow replay --rerun` does "
        "it; where a release changed what is ignored, accept the finding.",
    ),
    FindingKind(
        "operation_differs",
        "an operation that is not what was asked for",
        "Its id is made of account, mode, effect, subject and occurrence, and a digest of its arguments is kept: one of them was changed by hand. The "
        "same wish may be sent a second time under its real id.",
        "possible",
        "onceflow operations list",
        "Compare the row with a backup of the database, and with the object at Stripe. Put right what was changed by hand, or accept "
        "the finding.",
    ),
    FindingKind(
        "parked_without_marker",
        "an event that waits without its marker",
        "A parked row has it, and its marker does not say so.",
        "possible",
        "onceflow parked list",
        "Compare the row with a backup of the database. Put the marker back, or delete the parked row where the event was done.",
    ),
    FindingKind(
        "quarantine_differs",
        "kept bytes that are not the record's",
        "The quarantined bytes are not those of the record.",
        "no",
        "onceflow quarantine list",
        "Compare both with Stripe's event. Do not retry the row before it is put right; skip it with a reason, and replay the record.",
    ),
    FindingKind(
        "quarantine_lacks",
        "a quarantined record that is not kept",
        "The marker says quarantined, and the record's bytes are not kept.",
        "possible",
        "onceflow quarantine list",
        "Replay the event: `onceflow replay` of its record. Then find out who deleted the row.",
    ),
    FindingKind(
        "quarantine_without_marker",
        "a kept record whose event has no marker",
        "The record was admitted and is kept in quarantine, and no marker says so: the event would run again as a new one.",
        "possible",
        "onceflow quarantine list",
        "Decide about the kept record first (`onceflow quarantine show`), so that it does not run as a new event; then compare the "
        "markers of that time with a backup.",
    ),
    FindingKind(
        "quarantine_without_record",
        "a kept record that the log has not",
        "The quarantined record names a place of the log where there is none.",
        "no",
        "onceflow quarantine list",
        "The kept bytes are all that is left: decide about them as about any other (`onceflow quarantine show`). Then accept the "
        "finding.",
    ),
    FindingKind(
        "event_differs",
        "an event that Stripe shows otherwise",
        "Stripe shows another type or time of it than the marker.",
        "possible",
        "onceflow verify",
        "Look the event up in Stripe's dashboard, and compare marker and record with it. Put right what was changed by hand.",
    ),
    FindingKind(
        "event_not_listed",
        "an event that Stripe does not list",
        "A ledger has it, and Stripe's list of its time does not show it: it was forged, or belongs to another account.",
        "possible",
        "onceflow verify",
        "Look the event up in Stripe's dashboard. Where Stripe does not know it, find out how its record got an attestation, roll the "
        "keys, and undo what its handlers did.",
    ),
    FindingKind(
        "hour_differs",
        "an hour that differs from what Stripe listed",
        "The reconciler kept how many events Stripe listed of the hour, and a hash of their ids; the ledgers hold others now, and Stripe does not list that "
        "hour any more.",
        "possible",
        "onceflow verify --proof FILE",
        "Compare the hour with an older proof file, a backup, or Stripe's reports. Replay what is missing; accept what is explained.",
    ),
    FindingKind(
        "hours_unproved",
        "hours that nobody held against Stripe's list",
        "Stripe lists 30 days. The reconciler did not keep these hours a day after their end, and no earlier proof holds them: what was lost in them can "
        "be found by nobody. Compare with Stripe's reports, and accept it.",
        "possible",
        "onceflow verify --findings",
        "Compare the hours with Stripe's reports, do by hand what was missed, then accept the finding. Let the reconciler run all the "
        "time.",
    ),
    FindingKind(
        "outcome_not_published",
        "an outcome that is said to be published and is not",
        "The lane says so, and the topic does not have it: consumers have not seen it.",
        "possible",
        "onceflow lanes refill LANE",
        "`onceflow lanes refill LANE --execute` sends it again with its old id and sequence; consumers that dedupe by `ce_id` take it "
        "once.",
    ),
    FindingKind(
        "outcome_doubled",
        "a sequence that stands twice in a lane",
        "Only the relay writes outcomes, and each once. Consumers that go by `ce_id` or by sequence are safe.",
        "possible",
        "onceflow lanes show",
        "Find out who else writes to the outcome topic, and take that right away. Tell consumers that go by neither `ce_id` nor "
        "sequence; then accept the finding.",
    ),
    FindingKind(
        "lane_gap",
        "a sequence that is missing or out of order in a lane",
        "The topic goes on behind a gap: a record was removed, or written by somebody else.",
        "possible",
        "onceflow lanes refill LANE",
        "`onceflow lanes refill LANE --execute` sends what is missing with its old ids and sequences. Where it was written by somebody"
        " else, take that right away.",
    ),
    FindingKind(
        "outcome_foreign",
        "a record of the outcome topic that is none of ours",
        "Somebody else has written to the outcome topic.",
        "possible",
        "onceflow lanes show",
        "Find out who writes to the outcome topic, and take that right away; tell its consumers which record it is. Then accept the "
        "finding.",
    ),
    FindingKind(
        "outcome_without_row",
        "a published outcome without its row",
        "The topic has it, and the table has not: rows were deleted, or the database was put back.",
        "possible",
        "onceflow lanes show",
        "Where the database was put back, the relay imports the rows at its start: see `onceflow lanes show`. Otherwise put the rows "
        "back from a backup.",
    ),
    FindingKind(
        "outcome_differs",
        "a published outcome that is not its row's",
        "Record and row of one sequence differ.",
        "possible",
        "onceflow lanes show",
        "Compare both with a backup. Consumers have acted on the record: put the row right, or publish a revision with `onceflow "
        "replay --rerun`.",
    ),
    FindingKind(
        "lane_rows_missing",
        "rows of a lane that are missing",
        "Between the first sequence and the head there are fewer or more rows than sequences, or the head is wrong.",
        "possible",
        "onceflow lanes show",
        "Put the rows back from a backup. Nothing is handed out twice meanwhile: the head stands behind what the topic has.",
    ),
    FindingKind(
        "published_beyond_topic",
        "a lane that says more than its topic has",
        "The topic lost its end, or the lane's row was changed. The relay rewinds, and publishes the rest again.",
        "possible",
        "onceflow lanes show",
        "Nothing where the lane goes on by itself. A lane that stands still waits for `onceflow lanes resume`: "
        "docs/operating/positions.md.",
    ),
    FindingKind(
        "published_behind_topic",
        "a topic that has more than its lane says",
        "The relay has not noted what it published, or somebody else writes to the topic.",
        "possible",
        "onceflow lanes show",
        "Let the relay run: it notes what the topic has at its start. Where it stays, somebody else writes to the topic: take that "
        "right away.",
    ),
    FindingKind(
        "outcome_topic_changed",
        "an outcome topic that is another one",
        "The lanes belong to a topic of another id: it was deleted and made anew.",
        "possible",
        "onceflow lanes show",
        "Find out who made the topic anew. Lanes go on after `onceflow lanes resume`: docs/operating/positions.md; consumers begin at "
        "its start.",
    ),
    FindingKind(
        "object_not_listed",
        "an effect that Stripe does not show",
        "The operation has succeeded, and Stripe's list of its time does not have its object.",
        "yes",
        "onceflow operations show ID",
        "Look the object up by its id in Stripe's dashboard. Where it is not there, the key may be of another account; compare the "
        "operation with a backup.",
    ),
    FindingKind(
        "proof_differs",
        "an earlier proof that says something else",
        "An hour, a lane or a topic is not what it was when it was proved: rows were deleted or added since.",
        "possible",
        "onceflow verify --proof FILE",
        "Compare both files: the detail names the hour, lane or topic. What is missing is in a backup; what was put right since is "
        "proved by a new file.",
    ),
    FindingKind(
        "proof_of_another",
        "a proof of another deployment",
        "The file belongs to another deployment or mode.",
        "no",
        "onceflow verify --proof FILE",
        "Give the file of this deployment and mode, or write a new one.",
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
