"""``python -m onceflow_simulator``: the simulator as a process of its own."""

import sys

from onceflow_simulator.server import main

sys.exit(main())
