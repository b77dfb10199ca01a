"""The public door of onceflow: what a platform team imports to write handlers and effects.

>>> from onceflow import Event, Handlers, Tx

The names are loaded when they are first asked for, because every command passes through here and most need none.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onceflow_processor.event import Event, Previous
    from onceflow_processor.handler_words import Quarantine, RetryIn
    from onceflow_processor.handlers import Handlers
    from onceflow_processor.operations.asked import OperationConflict
    from onceflow_processor.operations.attached import attach
    from onceflow_processor.operations.effect import Settled
    from onceflow_processor.tx import Tx
    from onceflow_schemas.operations.calls import Charge, HttpCall, Mail, StripeCall
    from onceflow_schemas.operations.operation import Policy

__all__ = [
    "Charge", "Event", "Handlers", "HttpCall", "Mail", "OperationConflict", "Policy", "Previous", "Quarantine", "RetryIn",
    "Settled", "StripeCall", "Tx", "attach",
]  # fmt: skip

_CALLS = "onceflow_schemas.operations.calls"
_HOME = {
    "Charge": _CALLS,
    "Event": "onceflow_processor.event",
    "Handlers": "onceflow_processor.handlers",
    "HttpCall": _CALLS,
    "Mail": _CALLS,
    "OperationConflict": "onceflow_processor.operations.asked",
    "Policy": "onceflow_schemas.operations.operation",
    "Previous": "onceflow_processor.event",
    "Quarantine": "onceflow_processor.handler_words",
    "RetryIn": "onceflow_processor.handler_words",
    "Settled": "onceflow_processor.operations.effect",
    "StripeCall": _CALLS,
    "Tx": "onceflow_processor.tx",
    "attach": "onceflow_processor.operations.attached",
}


def __getattr__(name: str) -> Any:
    """Load a public name from its home module."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
