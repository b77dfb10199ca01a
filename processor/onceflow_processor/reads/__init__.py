"""Reads of objects at Stripe: what an event waits for is read outside any transaction, once for all events that wait."""
