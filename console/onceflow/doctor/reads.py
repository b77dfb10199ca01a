"""The doctor's judgement of reads at Stripe that events wait for.

Rule: pure.  A read that waits for long means that nobody reads, or that nobody may.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onceflow.doctor.checked import Checked, cross, tick

WAITING_SECONDS_MAX = 60.0
"""Workers read what is asked for at once, as far as the account's limit allows."""


def judge_reads(row: Mapping[str, Any], *, read_objects: bool) -> Checked:
    """Judge what waits.

    Args:
        row: waiting, oldest_seconds, not_permitted, failed, as the query ``reads`` gives them.
        read_objects: the setting.
    """
    subject = "reads at Stripe"
    switched = "on" if read_objects else "off"
    found = f"processor.read_objects is {switched}, {row['waiting']} wait, {row['failed']} have failed"
    if row["not_permitted"]:
        fix = "Give the Stripe key of `onceflow operate` the permission that onceflow.object_read names (detail)."
        return cross(subject, f"{found}, {row['not_permitted']} are not permitted", fix=fix)
    if row["waiting"] and row["oldest_seconds"] > WAITING_SECONDS_MAX:
        fix = "onceflow.object_read says why a read is put off (detail); where no `onceflow operate` runs, start one with a Stripe key."
        return cross(subject, f"{found}, the oldest for {row['oldest_seconds']:.0f} s", fix=fix)
    return tick(subject, found)
