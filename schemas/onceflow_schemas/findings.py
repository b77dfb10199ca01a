"""The kinds of findings: what each means, whether money is at risk, and the first command to type.

Rule: a kind is a public contract like a failure code: dashboards and pages key on it.  ``docs/operating/findings.md`` is
generated from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from onceflow_schemas.finding_kind import FindingKind
from onceflow_schemas.ledger_findings import LEDGER_FINDINGS

_KINDS: Final = (
    FindingKind(
        "missed_event",
        "an event of Stripe that never came",
        "Stripe lists the event; no marker, no quarantined record and no waiting record knows it. It is brought to the event topic from the list and "
        "walks the usual road; the finding is healed when its marker is there. One that can never be brought says why in `refused` (the topic does not take "
        "its record, or its id or account is none of Stripe's) and keeps no other waiting: a person looks at it, and accepts the finding.",
        "possible",
        "onceflow findings list --kind missed_event",
        "Nothing, as a rule: it is done within a look or two. Many at once mean that webhooks do not arrive: look at the endpoint "
        "findings and at `onceflow_bridge_refused_total`. One with `refused` comes never by itself: read the event in Stripe's "
        "dashboard, do by hand what it asks for, and accept the finding.",
    ),
    FindingKind(
        "events_out_of_reach",
        "a time whose events nobody can list any more",
        "The reconciler did not read the list for longer than the 30 days that Stripe keeps. What was missed in that time cannot be found by events.",
        "possible",
        "onceflow findings show ID",
        "Compare the time that the finding names with Stripe's reports, do by hand what was missed, then accept the finding. Objects "
        "behind operations of that time are compared all the same.",
    ),
    FindingKind(
        "list_unbelievable",
        "a list of Stripe that contradicts itself",
        "A list repeated itself, showed an event without an id, or said that there is more and showed nothing. It proves nothing, so the cursor stays "
        "and the list is read again; other accounts go on.",
        "no",
        "onceflow reconcile --once --dry-run",
        "Look again in some minutes. Where it stays, look whether a proxy stands between you and Stripe, then ask Stripe: the same "
        "page is read again meanwhile, and no event is passed.",
    ),
    FindingKind(
        "account_not_readable",
        "an account that cannot be read",
        "Stripe refuses the key, the key lacks a permission, the account has been disconnected, or Stripe does not answer. Other accounts go on.",
        "possible",
        "onceflow verify",
        "The finding names what Stripe answered and the permission that the key lacks. Give the restricted key that permission, or set"
        " a key that works; for an account that has left you, accept the finding.",
    ),
    FindingKind(
        "reconcile_behind",
        "a list that was not read for 25 days",
        "Stripe shows events for 30 days only. What is not read before is out of reach.",
        "possible",
        "onceflow doctor",
        "Start `onceflow reconcile`, or find out why it does not get on: its own log, other findings of this account, `onceflow "
        "doctor`. Within five days the oldest events are out of reach.",
    ),
    FindingKind(
        "ledgers_not_readable",
        "ledgers that cannot be compared",
        "A topic cannot be read, is not the one that the database belongs to, or has another number of partitions than there are lanes. What the topics "
        "hold is not compared meanwhile; events are brought as ever.",
        "possible",
        "onceflow verify",
        "The finding names the topic and what is wrong with it. Check its name, its partitions and the rights of the reconciler's "
        "user; then `onceflow verify` shows whether it can be read.",
    ),
    FindingKind(
        "clock_skew",
        "a clock that differs from Stripe's by more than a minute",
        "The bridge refuses signatures whose time is too far from its own clock, and the database's clock decides about leases and waits.",
        "no",
        "onceflow doctor",
        "Let a time service set the clock of the machine that the finding names. Until then leases and signatures are judged by a "
        "wrong time, and webhooks may be refused.",
    ),
    FindingKind(
        "endpoint_missing",
        "no webhook endpoint that is enabled",
        "No endpoint of the account leads to a path of the bridge, or none is enabled. Events come late, by the reconciler alone.",
        "no",
        "onceflow findings show ID",
        "Make or enable an endpoint in Stripe's dashboard whose address leads to `/webhooks/stripe` of the bridge. What comes "
        "meanwhile is brought from the list.",
    ),
    FindingKind(
        "endpoint_disabled",
        "a webhook endpoint that is disabled",
        "Stripe disables an endpoint after days without an answer. Events come late, by the reconciler alone. Enable it in Stripe's dashboard.",
        "no",
        "onceflow findings show ID",
        "Find out why the bridge did not answer (its log, `onceflow_bridge_refused_total`), then enable the endpoint in Stripe's "
        "dashboard. What was missed is brought from the list.",
    ),
    FindingKind(
        "endpoint_lacks_types",
        "event types that no webhook endpoint sends",
        "Events of these types had to be brought from the list, and no enabled endpoint has them. Add them in Stripe's dashboard.",
        "no",
        "onceflow findings show ID",
        "Add the types that the finding names to the endpoint in Stripe's dashboard, or take their handlers out if nobody needs them.",
    ),
    FindingKind(
        "endpoint_other_version",
        "a webhook endpoint of an API version that this release does not know",
        "Its events are handled, and fields may have other shapes than handlers expect.",
        "possible",
        "onceflow findings show ID",
        "Compare the versions that the finding names with the shapes that your handlers expect (docs/guides/shapes.md); then make an "
        "endpoint of the version that this release knows, or accept the finding.",
    ),
    FindingKind(
        "endpoint_refused",
        "webhooks that Stripe sends and nobody takes",
        "Events of the last hour had to be brought although an enabled endpoint has their types, and Stripe still tried to deliver them: the endpoint has "
        "another signing secret than `stripe.webhook_secret`, its address does not lead to a bridge, or the bridge was down. The bridge counts what it "
        "refuses in `onceflow_bridge_refused_total`.",
        "no",
        "onceflow doctor",
        "Compare the endpoint's signing secret and address in Stripe's dashboard with `stripe.webhook_secret` and the bridge's "
        "address; while a secret is rolled, set both.",
    ),
    FindingKind(
        "object_without_operation",
        "an effect at Stripe that no operation asked for",
        "An intent or refund carries the id of an operation that the database does not have: a script used our metadata, another deployment shares the "
        "account, or the row went with a restore.",
        "yes",
        "onceflow findings show ID",
        "Find out who made the object (its metadata and request log at Stripe). Where it should not be, refund or cancel it at Stripe;"
        " then accept the finding with what was done.",
    ),
    FindingKind(
        "operation_doubled",
        "two effects at Stripe for one operation",
        "Both move money and carry the id of one operation, which knows only one of them. onceflow sends at most one; somebody else has made the other.",
        "yes",
        "onceflow operations show ID",
        "Read both objects, refund or cancel the one that the operation does not name, and find out who made it. Then accept the "
        "finding.",
    ),
    FindingKind(
        "operation_disagrees",
        "an operation and its object disagree",
        "Status, amount or currency of the object are not what the operation has ended with: somebody changed it by hand.",
        "yes",
        "onceflow operations show ID",
        "Read both in Stripe's dashboard and in `operations show`. The operation is not changed: its outcome was published. Do by hand"
        " what follows from Stripe's state, then accept the finding.",
    ),
    FindingKind(
        "operation_behind",
        "an effect that its operation does not know",
        "The object is there and the operation has not heard of it, or of its end. Its workers look at it and settle it by what they see.",
        "possible",
        "onceflow operations show ID",
        "Nothing, as a rule: a worker settles it. Where it stays, start `onceflow operate`, and look for the operation in `onceflow "
        "operations list --open`.",
    ),
    FindingKind(
        "refund_failed_later",
        "a refund that failed after it had succeeded",
        "The bank returned it, up to 30 days later. The operation has failed, and its callback and outcome have said so. The customer has not got the "
        "money: give it back in another way, then accept the finding.",
        "yes",
        "onceflow operations show ID",
        "Give the money back in another way (a new refund is a new operation with an occurrence of its own, or a transfer), tell the "
        "customer, then accept the finding.",
    ),
    FindingKind(
        "parked_too_long",
        "a key that waits for a retry too long",
        "Its first event is tried again and again, or waits for a read at Stripe; all that comes behind it waits too.",
        "possible",
        "onceflow parked list --groups",
        "Read the error of its first event (`onceflow parked show`), mend its cause, and `onceflow findings heal` tries it at once. "
        "What cannot be mended is skipped: docs/operating/parked-and-quarantined.md.",
    ),
    FindingKind(
        "quarantined_too_long",
        "a record about which nobody decides",
        "It needs a person. Where it blocks its key, all that comes behind it waits.",
        "possible",
        "onceflow quarantine list --groups",
        "Read why (`onceflow quarantine show`), mend the handler or the data, then `onceflow quarantine retry`, or `onceflow "
        "quarantine skip` with a reason. What is behind it goes on in its order.",
    ),
    FindingKind(
        "operation_unknown_too_long",
        "an operation whose end nobody knows",
        "It may have happened at Stripe. It is looked up by itself; one in review needs a person.",
        "yes",
        "onceflow operations show ID",
        "Read what is known with `onceflow operations show`. It is looked up at Stripe by itself; where no evidence decides, `onceflow"
        " operations resolve` writes down what you have found. Never ask for it again under another id before that.",
    ),
    FindingKind(
        "lease_expired",
        "an operation that nobody works at",
        "It is due, and no worker has taken it up: none runs, or none knows its effect.",
        "yes",
        "onceflow operations list --open",
        "Start `onceflow operate` with the handlers that know the effect that the finding names. Nothing was sent twice: whoever takes"
        " the operation over has a new fence.",
    ),
    FindingKind(
        "outcome_unpublished_too_long",
        "outcomes that are not published",
        "The relay does not run, cannot reach the broker, or its lane stands still. The outcomes are safe in the database.",
        "no",
        "onceflow lanes show",
        "Start `onceflow relay`, or see in `onceflow lanes show` and `onceflow doctor --part relay` what holds it up. Nothing is lost,"
        " and the order stays.",
    ),
    FindingKind(
        "lane_stopped",
        "a lane that stands still",
        "Topic and database disagree about it, or an outcome cannot be published.",
        "possible",
        "onceflow lanes show",
        "Read the code and its detail with `onceflow lanes show`; docs/operating/positions.md says for each code what may be decided, "
        "and `onceflow lanes resume` does it.",
    ),
    FindingKind(
        "partition_stopped",
        "a partition that stands still",
        "Its position and the topic's log contradict each other: records were lost, or the topic was made anew.",
        "possible",
        "onceflow progress show",
        "Read the code with `onceflow progress show`; docs/operating/positions.md says for each code what may be decided, and "
        "`onceflow progress set` does it. What was lost is then brought from Stripe's list.",
    ),
    FindingKind(
        "topic_replaced",
        "an event topic that is another one under the same name",
        "It was deleted and made again, or another cluster answers. Nothing is read from it until a person has set the positions; then Stripe's list is "
        "read again from three days before the loss, and what no ledger knows is brought.",
        "possible",
        "onceflow progress show",
        "Find out who deleted the topic, then set the positions with `onceflow progress set`: docs/operating/positions.md.",
    ),
    FindingKind(
        "outcome_contradiction",
        "an outcome that was published otherwise than its handler gives it now",
        "The database was put back behind the topic. The published outcome stands; when its event ran again, the handler gave other bytes, because the "
        "tables that it reads differ. `onceflow replay --rerun` shows the difference and can publish it as a revision.",
        "possible",
        "onceflow replay --topic TOPIC --event-id EVENT --rerun",
        "Compare both values in `onceflow.outcome_contradiction`. Where the newer one is right, publish it as a revision with "
        "`onceflow replay --rerun --execute`; else accept the finding.",
    ),
)

FINDING_KINDS: Final[Mapping[str, FindingKind]] = MappingProxyType(
    {kind.name: kind for kind in (*_KINDS, *LEDGER_FINDINGS)}
)
