"""The relay: carries outcomes from PostgreSQL to their topic, each exactly once, lane by lane in sequence order.

Reading order: ``cursor`` (pure: what the relay's position is and when it is believed), ``topic_tail`` and
``lane_store`` (what Kafka and PostgreSQL say), ``inspection`` (the comparison), ``publish`` (the one Kafka
transaction), ``lease``, ``session`` (one term of one relay), ``service``.
"""
