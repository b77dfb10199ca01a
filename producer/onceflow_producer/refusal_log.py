"""The log lines of refused requests, not more of them than a person can read.

Rule: a refusal is always counted, and logged as long as its code has its share of lines; what was left out is said in
the next line.  Otherwise a stranger fills the disk.  A line holds codes, sizes and the peer's address, never a part
of body, header or secret.
"""

from __future__ import annotations

import structlog

from onceflow_producer.rate import InvalidRequestRate, RatePolicy
from onceflow_producer.refusal import Refusal

LINES_PER_CODE = RatePolicy(per_second=5.0, burst=50)

_log = structlog.get_logger("onceflow.bridge")
_ALARMS = frozenset({"record_too_large", "body_too_large"})
_QUIET = frozenset({"method_not_allowed", "not_found", "unknown_endpoint"})


class RefusalLog:
    """Writes ``webhook_refused``."""

    def __init__(self, policy: RatePolicy = LINES_PER_CODE) -> None:
        self._rate = InvalidRequestRate(policy)
        self._left_out: dict[str, int] = {}

    def write(self, refusal: Refusal, *, status: int, client: str, now: float) -> None:
        """Log one refusal.

        Args:
            refusal: its code and details.
            status: the HTTP status of the answer.
            client: the peer's address.
            now: a monotonic clock in seconds.
        """
        code = refusal.code
        if not self._rate.take(code, now=now):
            self._left_out[code] = self._left_out.get(code, 0) + 1
            return
        fields: dict[str, object] = {"code": code, "status": status, "detail": refusal.detail, "client": client}
        if refusal.skew_seconds is not None:
            fields["skew_seconds"] = refusal.skew_seconds
        if left_out := self._left_out.pop(code, 0):
            fields["left_out"] = left_out
        if code in _ALARMS:
            _log.error("webhook_refused", **fields)
        elif code in _QUIET:
            _log.info("webhook_refused", **fields)
        else:
            _log.warning("webhook_refused", **fields)
