"""The demo shop's handlers after the fault was found: a product may have no description."""

from onceflow import Event, Tx
from onceflow.examples.payments import handlers

__all__ = ["handlers"]


@handlers.on("product.updated")
def product_changed(event: Event, tx: Tx) -> None:
    """Tell the shop's search what a product is called now."""
    product = event.object
    words = (product["description"] or "").split()
    tx.outcome("product.changed", key=product["id"], data={"name": product["name"], "words": len(words)})
