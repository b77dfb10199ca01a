"""A relay with its maintenance duty as a process of its own: options as JSON, and a place at which it kills itself."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from onceflow_processor.relay.service import RelayOptions, run
from onceflow_processor.retention import duty
from onceflow_processor.retention.needs import Wishes
from onceflow_producer import failpoint


def main() -> int:
    options, wishes, point, hits = (json.loads(text) for text in sys.argv[1:5])
    options["state_file"] = Path(options["state_file"])
    options["event_topics"] = tuple(options["event_topics"])
    left = [hits]

    def hook(name: str) -> None:
        if name == point:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    failpoint.install(hook)
    # Small slices, so that a small table has many.
    duty.PAGES_MAX, duty.ROWS_MAX = 2, 40  # type: ignore[misc]
    return run(RelayOptions(**options, retention=Wishes(**wishes)))


if __name__ == "__main__":
    sys.exit(main())
