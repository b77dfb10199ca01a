"""A relay as a process of its own, for tests that kill, stop and continue it: options as JSON in the first argument."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from onceflow_processor.relay.service import RelayOptions, run


def main() -> int:
    options = json.loads(sys.argv[1])
    options["state_file"] = Path(options["state_file"])
    return run(RelayOptions(**options))


if __name__ == "__main__":
    sys.exit(main())
