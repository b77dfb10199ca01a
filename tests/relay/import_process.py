"""A relay whose imports are small pages, and which dies at a named step of them: options as JSON in the first argument."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from onceflow_processor.relay import lane_import
from onceflow_processor.relay.lane_store import LaneStore
from onceflow_processor.relay.service import RelayOptions, run

PAGE_ROWS = 100


def die_at(step: str, page_number: int) -> None:
    """Die by SIGKILL right before or right after a page, or right before the lane is opened again."""
    import_page, set_state = LaneStore.import_page, LaneStore.set_state
    pages = 0

    def counted(store: LaneStore, *args: Any, **named: Any) -> Any:
        nonlocal pages
        pages += 1
        if step == "before_page" and pages == page_number:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = import_page(store, *args, **named)
        if step == "after_page" and pages == page_number:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    def opened(store: LaneStore, *args: Any, **named: Any) -> Any:
        if step == "before_open" and named["state"] == "ok":
            os.kill(os.getpid(), signal.SIGKILL)
        return set_state(store, *args, **named)

    LaneStore.import_page = counted  # type: ignore[method-assign,assignment]
    LaneStore.set_state = opened  # type: ignore[method-assign,assignment]


def main() -> int:
    options = json.loads(sys.argv[1])
    options["state_file"] = Path(options["state_file"])
    lane_import.PAGE_ROWS_MAX = PAGE_ROWS  # type: ignore[misc]
    die_at(options.pop("step"), options.pop("page_number"))
    return run(RelayOptions(**options))


if __name__ == "__main__":
    sys.exit(main())
