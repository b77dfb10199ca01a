"""A small file system that can be filled and emptied again.

Rule: it is a tmpfs of our own, mounted only where this process may; nothing else is ever filled.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SIZE_MEGABYTES = 400
LEFT_BYTES = 16 * 1024
PIECE_BYTES = 1 << 20


class SmallDisk:
    """Mounted at ``folder``; ``mounted`` says whether that worked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mounted = False

    def mount(self) -> None:
        """Mount it, where the system lets us."""
        self.folder.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MEGABYTES}m", "chaos", str(self.folder)]
        try:
            self.mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
        except FileNotFoundError:
            self.mounted = False

    def unmount(self) -> None:
        """Give it back."""
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.folder)], capture_output=True, check=True)
            self.mounted = False

    def fill(self) -> int:
        """Take all but a few pages; return how many bytes were taken."""
        taken = 0
        with (self.folder / "balloon").open("wb") as balloon:
            while (free := self.free_bytes()) > LEFT_BYTES:
                piece = min(PIECE_BYTES, free - LEFT_BYTES)
                balloon.write(bytes(piece))
                balloon.flush()
                taken += piece
        return taken

    def empty(self) -> None:
        """Free what ``fill`` took."""
        (self.folder / "balloon").unlink(missing_ok=True)

    def free_bytes(self) -> int:
        """What is free now."""
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize
