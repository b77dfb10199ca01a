"""Log lines about records that went to quarantine.

Rule: they say where a record is to be found, never what it holds, and a flood of garbage is no flood of lines.
"""

from __future__ import annotations

import structlog

from onceflow_processor.attempt import Counts

KEPT_LINES_MAX = 20
"""Log lines about quarantined records of one batch; a flood of garbage must not become a flood of logs."""

log = structlog.get_logger("onceflow.processor")


def tell_kept(counts: Counts) -> None:
    """Say which records went to quarantine and where to find them; never what they hold."""
    for item, fault in counts.kept[:KEPT_LINES_MAX]:
        log.warning(
            "record_quarantined",
            code=fault.code,
            handler=fault.handler,
            event_id=None if item.event is None else item.event.identity.event_id,
            partition=str(item.record.partition),
            offset=item.record.offset,
        )
    more = len(counts.kept) - KEPT_LINES_MAX
    if more > 0:
        log.warning("records_quarantined", more=more)
