"""The demo shop's handlers as they were deployed: nobody had thought of a product without a description."""

from onceflow import Event, Tx
from onceflow.examples.payments import handlers

__all__ = ["handlers"]


@handlers.on("product.updated")
def product_changed(event: Event, tx: Tx) -> None:
    """Tell the shop's search what a product is called now."""
    product = event.object
    words = product["description"].split()  # Stripe gives null where there is none
    tx.outcome("product.changed", key=product["id"], data={"name": product["name"], "words": len(words)})
