"""``onceflow lanes refill ...`` as an operator types it, in batches of one record; it dies where a failpoint is passed.

Arguments: the failpoint, how often it is passed at the death (0: never), then those of ``onceflow``.
"""

from __future__ import annotations

import os
import signal
import sys

from onceflow.command_line import main
from onceflow_processor.relay import refill
from onceflow_producer.failpoint import install


def die_at(point: str, passes: int) -> None:
    """Die by SIGKILL at one pass of a failpoint."""
    left = passes

    def pass_by(name: str) -> None:
        nonlocal left
        if name == point:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    install(pass_by)


if __name__ == "__main__":
    refill.BATCH_RECORDS_MAX = 1  # type: ignore[misc]
    die_at(sys.argv[1], int(sys.argv[2]))
    sys.argv[1:3] = []
    main()
