"""The demo: real webhooks over a real Kafka and PostgreSQL, every part killed once, and a sum that is still right.

Rule: the demo is an outsider.  It speaks HTTP like Stripe, kills processes like a bad day, and counts from the raw
topics and tables; it calls nothing of the bridge, the processor or the relay.
"""
