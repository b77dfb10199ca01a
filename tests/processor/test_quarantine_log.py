"""Which lines tell of quarantined records, and what they do not say."""

from __future__ import annotations

from structlog.testing import capture_logs

from onceflow_processor.admission import Fault, Item
from onceflow_processor.attempt import Counts
from onceflow_processor.quarantine_log import KEPT_LINES_MAX, tell_kept
from onceflow_processor.records import Partition, Record


def counts(number: int) -> Counts:
    records = [
        Record(Partition("stripe.events.v1", 2), at, 1_700_000_000_000, b"key", b"secret", [], 1)
        for at in range(number)
    ]
    fault = Fault("handler_failed", "KeyError: 'secret'", "bill", "a traceback with a secret")
    return Counts(kept=[(Item(record, None), fault) for record in records])


def test_a_line_says_where_a_record_is_and_not_what_it_holds() -> None:
    with capture_logs() as lines:
        tell_kept(counts(1))
    assert lines == [
        {
            "event": "record_quarantined",
            "log_level": "warning",
            "code": "handler_failed",
            "handler": "bill",
            "event_id": None,
            "partition": str(Partition("stripe.events.v1", 2)),
            "offset": 0,
        }
    ]


def test_many_records_are_a_number() -> None:
    with capture_logs() as lines:
        tell_kept(counts(KEPT_LINES_MAX + 5))
    assert [line["event"] for line in lines] == ["record_quarantined"] * KEPT_LINES_MAX + ["records_quarantined"]
    assert lines[-1]["more"] == 5
