"""``python -m onceflow`` is the command ``onceflow``; children of ``onceflow up`` are started so."""

from __future__ import annotations

from onceflow.command_line import main

if __name__ == "__main__":
    main()
