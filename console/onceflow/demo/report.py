"""The result: a table for people, one object for programs, and the last line for both.

Rule: the last line is a contract (``demo: ok - ...`` or ``demo: FAILED - ...``), so nothing is written after it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from onceflow.demo.breaking import Death
from onceflow.demo.counting import Count
from onceflow.results import write_object, write_table

FAULTS_SHOWN_MAX = 10
NO_MINOR_UNIT = frozenset({"jpy"})
LOOK_NEXT = (
    ("README.md, Five minutes", "write a handler, try it, run it: about ten lines"),
    ("onceflow up", "the same system to play with, until Ctrl-C; your data stays in .onceflow/"),
    ("docs/guides/operations.md", "ask for charges and refunds: in a handler, or in a transaction of your application"),
    ("stripe listen --forward-to ...", "real test events of your own sandbox: `onceflow up` prints the whole line"),
    ("docs/consuming.md", "read the outcomes: 30 lines of Python, and what to do in other languages"),
)


@dataclass(frozen=True, kw_only=True)
class Report:
    """All that the demo found out; the sums are payments per currency, in minor units."""

    seed: int
    seconds: float
    count: Count
    deaths: list[Death]
    sent: Mapping[str, int]
    published: Mapping[str, int]

    @property
    def ok(self) -> bool:
        """Nothing disagrees, money included."""
        return self.count.ok and self.sent == self.published

    def last_line(self) -> str:
        """Return the line of the contract."""
        if self.count.ok and not self.ok:
            return f"demo: FAILED - payments sent {dict(self.sent)}, in the outcome topic {dict(self.published)}"
        return self.count.last_line()


def write_report(report: Report, *, as_json: bool) -> None:
    """Write the result to standard output."""
    if as_json:
        plain = {"ok": report.ok, "seed": report.seed, "seconds": round(report.seconds, 1), **asdict(report.count)}
        plain |= {"deaths": [asdict(death) for death in report.deaths]}
        plain |= {"payments_sent": dict(report.sent), "payments_published": dict(report.published)}
        write_object(plain | {"line": report.last_line()})
        return
    write_table(("what", "counted", ""), _rows(report))
    sys.stdout.write("\n")
    faults = (*report.count.lost, *report.count.doubled, *report.count.wrong)
    for fault in faults[:FAULTS_SHOWN_MAX]:
        sys.stdout.write(f"wrong: {fault}\n")
    if report.ok:
        sys.stdout.write("Look next:\n")
        sys.stdout.writelines(f"  {what:<40}{why}\n" for what, why in LOOK_NEXT)
    sys.stdout.write(f"\n{report.last_line()}\n")
    sys.stdout.flush()


def write_failed(reason: str, *, as_json: bool, seed: int) -> None:
    """Write the result of a demo that could not count."""
    line = f"demo: FAILED - {' '.join(reason.split())}"
    if as_json:
        write_object({"ok": False, "seed": seed, "line": line})
        return
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _rows(report: Report) -> Iterator[tuple[str, str, str]]:
    count = report.count
    ways = f"{count.repeats} repeats, {count.retried} retries, {count.simulated:,} by the simulated Stripe itself"
    yield "requests sent", f"{count.sent:,}", ways
    yield "answered 200", f"{count.answered:,}", "only after Kafka had confirmed"
    yield "wrong signatures refused", f"{count.refused:,}", "none of them in the topic"
    unanswered = count.records - count.answered
    lost_answers = f"; {unanswered:,} more than answered: their answers died with a part" if unanswered > 0 else ""
    yield "records in the event topic", f"{count.records:,}", f"each repeat is a record of its own{lost_answers}"
    yield "distinct events in the topic", f"{count.distinct:,}", "= processed + ignored + quarantined"
    yield "  processed", f"{count.processed:,}", "their effects are in PostgreSQL, once"
    yield "  ignored", f"{count.ignored:,}", "no handler for their type"
    yield "  quarantined", f"{count.quarantined:,}", "odd content, bytes kept for a person"
    yield "outcomes written", f"{count.written:,}", "in the transactions of their events, operations and orders"
    yield "outcomes published", f"{count.published:,}", "read_committed, sequence dense in every lane"
    yield "operations asked for", f"{count.operations:,}", "refunds by handlers, charges by an application"
    yield "  effects at Stripe", f"{count.effects:,}", "counted in its own ledger, one for each operation"
    yield "  declined", f"{count.declined:,}", "nothing was charged, and the intent is closed"
    yield "  were unknown", f"{count.were_unknown:,}", "an answer was lost, or the worker died; settled by evidence"
    yield "  in review", f"{count.in_review:,}", "nothing was left to a person"
    yield (
        "redriven in their order",
        f"{count.redriven:,}",
        "one poisoned event and those behind it, after its handler was mended",
    )
    yield "to replay", f"{count.replay_runs:,}", "a dry run over the whole topic: everything has its marker"
    yield "unexplained", f"{count.unexplained:,}", "onceflow verify: Stripe's list, both topics and the tables agree"
    for currency in sorted({*report.sent, *report.published}):
        sent, published = (_money(sums.get(currency, 0), currency) for sums in (report.sent, report.published))
        yield f"payments sent, {currency}", sent, f"in the outcome topic: {published}"
    for death in report.deaths:
        told = f"until its successor ran; pid {death.pid} was killed after {death.after_requests:,} requests"
        yield f"kill -9 {death.part}", f"{death.recovery_seconds:.1f} s", told
    yield "all of it took", f"{report.seconds:.0f} s", f"again: onceflow demo --seed {report.seed}"


def _money(amount: int, currency: str) -> str:
    """Write minor units as people do; only here, and only from integers."""
    if currency in NO_MINOR_UNIT:
        return f"{amount:,}"
    return f"{amount // 100:,}.{amount % 100:02d}"
