"""Real PostgreSQL and real Kafka from Python packages only, for first runs, demos and tests; not for production.

In reading order: ``services`` (the door), ``data_folder``, ``ports``, ``child_process`` with ``launcher`` (why
nothing is left over), ``kafka_jars``, ``java_runtime``, ``broker_properties``, ``kafka_broker``,
``postgres_identity``, ``postgres_cluster``, ``postgres_server``.
"""

from onceflow.embedded.broker_properties import ExtraListener
from onceflow.embedded.services import EmbeddedServices

__all__ = ["EmbeddedServices", "ExtraListener"]
