"""The names under which the services meet in Kafka.

Rule: groups and the transactional id are made here and nowhere else, since several services, and the rights that an
operator grants, must agree on them.  Pure.
"""

from __future__ import annotations


def processor_group(deployment: str) -> str:
    """Return the consumer group of the processors."""
    return f"onceflow.{deployment}.processor"


def replay_group(deployment: str) -> str:
    """Return the name under which replays look at topics; nobody joins it and nothing is kept under it."""
    return f"onceflow.{deployment}.replay"


def reconciler_group(deployment: str) -> str:
    """Return the name under which the reconciler looks at topics; nobody joins it and nothing is kept under it."""
    return f"onceflow.{deployment}.reconciler"


def relay_group(deployment: str) -> str:
    """Return the group under which the relay keeps its cursor."""
    return f"onceflow.{deployment}.relay"


def transactional_id(deployment: str, outcome_topic: str) -> str:
    """Return the id by which a new relay fences the old one."""
    return f"onceflow.{deployment}.relay.{outcome_topic}"
