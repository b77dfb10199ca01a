"""Ready-made effects.

>>> from onceflow import Handlers
>>> from onceflow.effects import refund
>>> handlers = Handlers()
>>> give_back = handlers.use(refund, name="give_back")

Rule: what stands here is public; a name is taken away only with a new major version.
"""

from onceflow_processor.operations.ready_made import cancel, capture, charge, http_post, mail, refund

__all__ = ["cancel", "capture", "charge", "http_post", "mail", "refund"]
