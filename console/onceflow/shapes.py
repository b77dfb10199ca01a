"""Reading objects of any known API version.

>>> from onceflow import shapes
>>> shapes.subscription({"object": "invoice", "subscription": "sub_1"}).value
'sub_1'
>>> shapes.customer({"object": "charge", "customer": None}).problem
'null'

Rule: what stands here is public; a name is taken away only with a new major version.
"""

from onceflow_schemas.shapes import (
    Lines,
    Period,
    Problem,
    Reading,
    charge,
    current_period,
    customer,
    item_periods,
    lines,
    payment_intent,
    reference,
    subscription,
)

__all__ = [
    "Lines", "Period", "Problem", "Reading", "charge", "current_period", "customer", "item_periods", "lines", "payment_intent",
    "reference", "subscription",
]  # fmt: skip
