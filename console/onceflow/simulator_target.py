"""Which simulated Stripe a command steers, and how what it refuses is told.

Rule: it is the one of the running ``onceflow up`` that a ready file names, unless an address is given.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onceflow.results import say
from onceflow_schemas.failure import Misconfigured, Refused, Unavailable
from onceflow_simulator import SimulatorClient, SimulatorRefused

READY_FILES = (Path("ready.json"), Path(".onceflow") / "ready.json")
"""Where a ready file is looked for, from this folder."""

ANY_KEY = "sk_test_simulator"
WINDOW_SECONDS_MAX = 23 * 3_600
"""The longest safe window that the settings allow (``operations.safe_window_hours``)."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}


@dataclass(frozen=True, slots=True)
class Target:
    """A simulator, and an API key that it takes."""

    client: SimulatorClient
    api_key: str


def find_target(*, url: str | None, ready_file: Path | None) -> Target:
    """Return the simulator that is meant.

    Args:
        url: its address, when given.
        ready_file: of the ``up`` that started it; else one of ``READY_FILES``.

    Raises:
        Misconfigured: ``settings_invalid``: there is none.
    """
    if url is not None:
        if not url.startswith(("http://", "https://")):
            raise Misconfigured("settings_invalid", f"--url {url} is no address", "Such as http://127.0.0.1:12111.")
        return Target(SimulatorClient(url.rstrip("/")), ANY_KEY)
    found = ready_file or next((path for path in READY_FILES if path.exists()), None)
    if found is None or not found.exists():
        where = found or " and ".join(str(path) for path in READY_FILES)
        message = f"there is no ready file of a running `onceflow up`: {where}"
        raise Misconfigured("settings_invalid", message, "Start `onceflow up`, or give --ready-file or --url.")
    try:
        ready: dict[str, Any] = json.loads(found.read_text("utf-8"))
    except ValueError:
        message = f"{found} is no ready file of `onceflow up`"
        raise Misconfigured("settings_invalid", message, "Give its own --ready-file, or --url.") from None
    if "stripe_api_base" not in ready:
        message = f"the `onceflow up` of {found} was started with --no-simulator"
        raise Misconfigured("settings_invalid", message, "Start it without that flag, or give --url.")
    return Target(SimulatorClient(ready["stripe_api_base"]), ready["stripe_api_key"])


@contextmanager
def told(target: Target) -> Iterator[Target]:
    """Tell what the simulator refuses, or that it is away, as a failure.

    Raises:
        Refused: ``simulator_refused``.
        Unavailable: ``service_failed``.
    """
    try:
        yield target
    except SimulatorRefused as error:
        raise Refused("simulator_refused", str(error)) from None
    except OSError as error:
        message = f"the simulator at {target.client.url} does not answer: {error}"
        raise Unavailable("service_failed", message, "Is that `onceflow up` still running?") from None


def require_whole_window(
    client: SimulatorClient, *, anyway: bool, advance_seconds: float = 0.0, key_life_seconds: float | None = None
) -> None:
    """Refuse, or with ``anyway`` only tell, what would have the simulator forget keys that onceflow may still use.

    Keys age by the simulator's clock, the safe window by the database's, which nobody moves. A key that is gone inside the
    window is a second effect of the same request, which Stripe promises not to make and so nothing of ours can prevent.

    Args:
        anyway: that is what is wanted.
        advance_seconds: by which the clock shall be moved.
        key_life_seconds: how long keys shall be kept; None for as long as they are now.

    Raises:
        Refused: ``simulator_refused``.
    """
    life = client.call("GET", "/knobs")["key_life_seconds"] if key_life_seconds is None else key_life_seconds
    ahead = client.call("GET", "/clock")["advanced_seconds"] + advance_seconds
    if life - ahead >= WINDOW_SECONDS_MAX:
        return
    message = (
        f"the simulator would keep keys for {_hours(life)} by a clock that was moved ahead by {_hours(ahead)} in all, while the"
        " safe window of operations goes by the database's clock: an unknown operation could be sent again with a key"
        " that is gone, and act twice"
    )
    if not anyway:
        hint = (
            "Add --anyway if that is what you want to see. To see what happens after the window, ask for an operation"
            " with happened_at= (docs/simulator.md)."
        )
        raise Refused("simulator_refused", message, hint)
    say(f"warning: {message}")


def _hours(seconds: float) -> str:
    return f"{seconds / 3_600:g} h"


def parse_duration(text: str) -> float:
    """Return the seconds of ``90``, ``15m``, ``25h`` or ``3d``.

    Raises:
        ValueError: it is none.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no time such as 90s, 15m, 25h or 3d")
    return float(match[1]) * _UNITS[match[2]]


def parse_assignments(given: Sequence[str]) -> dict[str, Any]:
    """Return ``name=value`` pairs; a value that is JSON is taken as such, anything else as text.

    Raises:
        ValueError: one has no name or no ``=``.
    """
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"{text!r} is not NAME=VALUE")
        try:
            found[name.strip()] = json.loads(value)
        except ValueError:
            found[name.strip()] = value
    return found
