"""Named places between two durable steps, at which a test may end, stop or delay this process.

Rule: the product never sets a hook, reads no setting and no environment for it, and looks at nothing here.  A test
that starts a service through an entry script of its own installs one first; without it a place costs one comparison.
"""

from __future__ import annotations

from collections.abc import Callable

_hook: Callable[[str], None] | None = None


def install(hook: Callable[[str], None] | None) -> None:
    """Call ``hook`` with the name of each place that is passed from now on; None ends that."""
    global _hook  # noqa: PLW0603 - one per process is what it is for
    _hook = hook


def hit(name: str) -> None:
    """Pass the place ``name``: ``<part>.<between which steps>``; each name stands once in the sources."""
    if _hook is not None:
        _hook(name)
