"""Whether Stripe's webhook endpoints can bring what is needed, and whether clocks agree.

Rule: only endpoints whose path is the bridge's are judged, since an account may have others for other applications.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from onceflow_reconciler.finding import Finding
from onceflow_schemas.api_versions import is_known

OUR_PATH: Final = "/webhooks/stripe"
SKEW_SECONDS_MAX: Final = 60
BEHIND_DAYS_MAX: Final = 25
TYPES_SHOWN_MAX: Final = 50
KINDS: Final = (
    "endpoint_missing",
    "endpoint_disabled",
    "endpoint_lacks_types",
    "endpoint_other_version",
    "endpoint_refused",
)
_DAY: Final = 24 * 3600


def judge_endpoints(
    endpoints: Iterable[Mapping[str, Any]], *, missed_types: Mapping[str, bool], account: str, mode: str
) -> list[Finding]:
    """Return what is wrong with an account's webhook endpoints.

    Args:
        endpoints: all of the account, as Stripe lists them.
        missed_types: of events that had to be brought lately, and whether Stripe still tried to deliver some.
        account, mode: whose they are.
    """
    ours = [one for one in endpoints if urlsplit(str(one.get("url"))).path.startswith(OUR_PATH)]
    enabled = [one for one in ours if one.get("status") == "enabled"]
    found = [_finding("endpoint_disabled", one, account, mode, {}) for one in ours if one not in enabled]
    if not enabled:
        facts = {"endpoints": len(ours)}
        return [*found, Finding("endpoint_missing", f"endpoints of {account}", account, mode, facts)]
    found += [
        _finding("endpoint_other_version", one, account, mode, {"api_version": one.get("api_version")})
        for one in enabled
        if not is_known(one.get("api_version"))
    ]
    taken = {event_type for one in enabled for event_type in one.get("enabled_events") or ()}
    lacking = sorted(one for one in missed_types if one not in taken)
    if lacking and "*" not in taken:
        found.append(Finding("endpoint_lacks_types", f"endpoints of {account}", account, mode, _types(lacking)))
    refused = sorted(one for one, is_tried in missed_types.items() if is_tried and ("*" in taken or one in taken))
    if refused:
        found.append(Finding("endpoint_refused", f"endpoints of {account}", account, mode, _types(refused)))
    return found


def _types(types: list[str]) -> dict[str, Any]:
    return {"types": types[:TYPES_SHOWN_MAX], "more": max(0, len(types) - TYPES_SHOWN_MAX)}


def judge_clocks(*, stripe_now: int, own_now: float, database_now: float) -> list[Finding]:
    """Return which clock differs from Stripe's by more than a minute: signatures and leases are judged by them."""
    clocks = {"this host": own_now, "the database": database_now}
    return [
        Finding("clock_skew", f"clock of {name}", facts={"seconds": round(at - stripe_now)})
        for name, at in clocks.items()
        if abs(at - stripe_now) > SKEW_SECONDS_MAX
    ]


def judge_backlog(done_until: int, *, now: int, account: str, mode: str) -> Finding | None:
    """Return a finding when an account's list was not read for so long that Stripe may soon show it no more."""
    days = (now - done_until) // _DAY
    if days < BEHIND_DAYS_MAX:
        return None
    return Finding("reconcile_behind", f"events of {account}", account, mode, {"days": days, "limit_days": 30})


def _finding(kind: str, endpoint: Mapping[str, Any], account: str, mode: str, facts: dict[str, Any]) -> Finding:
    told = {"endpoint": endpoint.get("id"), "url": endpoint.get("url"), "status": endpoint.get("status"), **facts}
    return Finding(kind, f"endpoint {endpoint.get('id')} of {account}", account, mode, told)
