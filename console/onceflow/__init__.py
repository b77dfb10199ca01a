"""The public door of onceflow: what a platform team imports to write handlers.

>>> from onceflow import Event, Handlers, Tx
"""

from onceflow_processor.event import Event
from onceflow_processor.handlers import Handlers
from onceflow_processor.tx import Tx

__all__ = ["Event", "Handlers", "Tx"]
