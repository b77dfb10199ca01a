"""A log line for each API version that this release does not know.

Rule: a version is told once by a process, not once per event, and what is remembered of texts from outside is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from onceflow_schemas.api_versions import NEWEST_KNOWN
from onceflow_schemas.quoting import quoted

TOLD_MAX = 50

log = structlog.get_logger("onceflow.processor")


class VersionLog:
    """Remembers which versions it has told."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def tell(self, versions: Iterable[str]) -> None:
        """Say which of these versions are new to this process."""
        for version in versions:
            if version not in self._told and len(self._told) < TOLD_MAX:
                self._told.add(version)
                log.warning("api_version_unknown", version=quoted(version), newest_known=NEWEST_KNOWN)
