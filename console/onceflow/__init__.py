"""The public door of onceflow: what a platform team imports to write handlers.

>>> from onceflow import Event, Handlers, Tx

The names are loaded when they are first asked for, because every command passes through here and most need none.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onceflow_processor.event import Event
    from onceflow_processor.handlers import Handlers
    from onceflow_processor.tx import Tx

__all__ = ["Event", "Handlers", "Tx"]

_HOME = {"Event": "event", "Handlers": "handlers", "Tx": "tx"}


def __getattr__(name: str) -> Any:
    """Load a public name from its home module."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"onceflow_processor.{_HOME[name]}"), name)
