"""PostgreSQL under a clock of our own, where Debian's libfaketime is installed.

Rule: without the library nothing is shifted, and whoever needs the shift says so.
"""

from __future__ import annotations

from pathlib import Path

CLOCK_SCRIPT = """#!/bin/sh
export FAKETIME_TIMESTAMP_FILE='{clock}' FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1
LD_PRELOAD='{library}' exec '{server}' "$@"
"""


def find_faketime() -> Path | None:
    """Return Debian's libfaketime, None where it is not installed."""
    return next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)
