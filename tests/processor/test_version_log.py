"""An unknown API version is told once, however many events have it."""

from __future__ import annotations

from structlog.testing import capture_logs

from onceflow_processor.version_log import TOLD_MAX, VersionLog


def test_a_version_is_told_once() -> None:
    versions = VersionLog()
    with capture_logs() as lines:
        versions.tell(["2031-01-01", "2031-01-01"])
        versions.tell({"2031-01-01": 7, "odd\n": 1})
    assert [line["version"] for line in lines] == ["'2031-01-01'", "'odd\\n'"]
    assert {line["event"] for line in lines} == {"api_version_unknown"}


def test_what_is_remembered_is_bounded() -> None:
    versions = VersionLog()
    with capture_logs() as lines:
        versions.tell(f"9999-01-01.{n}" for n in range(TOLD_MAX + 20))
    assert len(lines) == TOLD_MAX
