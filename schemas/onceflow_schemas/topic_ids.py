"""How a topic's id is shown.

Rule: an id is stored and compared as the client library gives it, in plain base64, since keys of the ledger hold it so;
only what a person or another tool reads is in the form of Kafka's own tools.  Pure.
"""

from __future__ import annotations

_URL_SAFE = str.maketrans({"+": "-", "/": "_", "=": None})


def shown_topic_id(topic_id: str) -> str:
    """Return a topic's id as Kafka's own tools print it: base64 that is safe in a URL, without padding."""
    return topic_id.translate(_URL_SAFE)
