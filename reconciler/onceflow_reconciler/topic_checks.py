"""Whether the event topics are those whose positions are kept.

Rule: a topic that was deleted and made again under its name is another topic: its partitions wait for a person, and this says so where
people look.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from psycopg import Connection

from onceflow_processor.kafka_client import TopicFacts
from onceflow_reconciler.finding import Finding
from onceflow_reconciler.finding_store import record
from onceflow_schemas.sql import queries

KIND: Final = "topic_replaced"

_SQL = queries("reconcile")


def look_at_topics(connection: Connection[Any], topics: Mapping[str, TopicFacts]) -> int:
    """Write what is found and heal what is gone; return how many topics were replaced."""
    findings = []
    for topic, facts in topics.items():
        rows = connection.execute(_SQL["former_topic"], {"topic": topic, "topic_id": facts.topic_id}).fetchall()
        if rows:
            told = {
                "topic": topic,
                "topic_id": facts.topic_id,
                "former_topic_id": rows[0][1],
                "partitions": [partition for partition, _ in rows],
            }
            findings.append(Finding(KIND, f"topic {topic}", facts=told))
    with connection.transaction():
        record(connection, findings)
        seen = [finding.subject for finding in findings]
        connection.execute(_SQL["gone_of_kind"], {"kind": KIND, "subjects": seen})
    return len(findings)
