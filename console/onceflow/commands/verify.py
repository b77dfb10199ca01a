"""``onceflow verify``: proves that the ledgers agree, or lists where they do not.

Rule: the status is 0 only when nothing is unexplained; a ledger that cannot be read is a failure, and never counted as agreed.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onceflow.command_options import Config, Json, KafkaConfig, Live, Set, setting_sources

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceflow_reconciler.verify.question import Answer

NEEDS = ("deployment.id", "stripe.account", "attestation.keys", "kafka.bootstrap.servers", "database.url")
SHOWN_MAX = 20
ACCEPTED_MAX = 1_000

_Time = Annotated[str | None, typer.Option(metavar="TIME", help="RFC 3339, by Stripe's `created`.")]


def verify(
    *,
    since: _Time = None,
    until: _Time = None,
    account: Annotated[str | None, typer.Option("--account", metavar="ACCOUNT", help="Only this account.")] = None,
    proof: Annotated[
        Path | None,
        typer.Option("--proof", metavar="FILE", help="Check this proof file if it is there, and extend it."),
    ] = None,
    without_stripe: Annotated[
        bool, typer.Option("--without-stripe", help="Leave Stripe's list out; the last line says so.")
    ] = False,
    findings: Annotated[
        bool, typer.Option("--findings", help="Keep what is unexplained as findings, which a person may accept.")
    ] = False,
    config: Config = None,
    kafka_config: KafkaConfig = None,
    assignments: Set = None,
    live: Live = False,
    as_json: Json = False,
) -> None:
    """Count each event through all ledgers; status 0 only when every difference is explained."""
    from onceflow.failure_options import time_of

    faults: list[str] = []
    begin, end = time_of("since", since, faults=faults), time_of("until", until, faults=faults)
    if begin is not None and end is not None and begin >= end:
        faults.append("--since is not before --until")
    if begin is not None and begin > datetime.now(UTC):
        faults.append("--since is in the future: nothing could be proved")
    if faults:
        raise typer.BadParameter("; ".join(faults))
    from onceflow.settings import load_settings
    from onceflow.verifying import answer_of
    from onceflow_reconciler.verify.hours import extended
    from onceflow_reconciler.verify.proof_file import read_proof, write_proof

    sources = setting_sources(config=config, kafka_config=kafka_config, assignments=assignments, live=live)
    settings = load_settings(sources, needs=NEEDS).settings
    former = None if proof is None else read_proof(proof)
    answer = answer_of(
        settings,
        since=begin,
        until=end,
        account=account,
        former=former,
        with_stripe=not without_stripe,
        keep_findings=findings,
    )
    if proof is not None and answer.unexplained_count == 0:
        write_proof(proof, extended(former, answer.proof))
    _tell(answer, as_json=as_json, without_stripe=without_stripe)
    raise typer.Exit(0 if answer.unexplained_count == 0 else 1)


def _tell(answer: Answer, *, as_json: bool, without_stripe: bool) -> None:
    from onceflow.results import say, write_object

    listed = [{"kind": kind, "subject": subject, "detail": detail} for kind, subject, detail in answer.unexplained]
    if as_json:
        accepted = [
            {"kind": kind, "subject": subject, "detail": detail, "finding": number, "who": who, "reason": reason}
            for kind, subject, detail, number, who, reason in answer.accepted
        ]
        write_object({**answer.proof, "differences": listed, "accepted_differences": accepted[:ACCEPTED_MAX]})
        return
    counts = answer.counts
    for account, told in counts["stripe"].items():
        words = [f"{told['listed_now']:,} listed now, {told['listed_before']:,} known from before"]
        words += [f"{told['on_the_way']:,} may be on their way"] if told["on_the_way"] else []
        words += [f"{told['objects']:,} objects, {told['of_operations']:,} of operations"]
        words += ["older ones are not listed by Stripe any more"] if told["beyond_30_days"] else []
        say(f"Stripe, {account}: {'; '.join(words)}")
    say(f"records of events: {_states(counts['records'])}")
    outcomes = counts["outcomes"]
    say(f"outcomes: {outcomes['written']:,} written, {outcomes['published']:,} published")
    say(f"operations: {_states(counts['operations'])}")
    for kind, subject, detail, number, who, reason in answer.accepted[:SHOWN_MAX]:
        say(f"accepted: {kind} {subject}: {detail} (finding {number}, {who}: {reason})")
    if len(answer.accepted) > SHOWN_MAX:
        say(f"and {len(answer.accepted) - SHOWN_MAX:,} more that were accepted")
    for one in listed[:SHOWN_MAX]:
        say(f"unexplained: {one['kind']} {one['subject']}: {one['detail']}")
    if answer.unexplained_count > SHOWN_MAX:
        say(f"and {answer.unexplained_count - SHOWN_MAX:,} more; --json lists the first {len(listed):,}")
    if listed:
        say("next: docs/operating/verify.md says what each kind means and what to do first")
    aside = " (Stripe was not asked)" if without_stripe else ""
    typer.echo(f"verify: {answer.proof['events']} events, {answer.unexplained_count} unexplained{aside}")


def _states(counts: Mapping[str, Any]) -> str:
    return ", ".join(f"{count:,} {state.replace('_', ' ')}" for state, count in counts.items()) or "none"
