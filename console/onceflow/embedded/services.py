"""The two embedded services as one thing with a beginning and an end.

Rule: whoever holds an ``EmbeddedServices`` owns its data folder; both services are ended before the folder is given
free.  Either service may be killed and started again alone in between: ``services.kafka.start()``, ``wait_ready()``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from onceflow.embedded.broker_properties import ExtraListener
from onceflow.embedded.data_folder import DataFolder
from onceflow.embedded.kafka_broker import KafkaBroker
from onceflow.embedded.postgres_server import PostgresServer


def _say_nothing(_line: str) -> None:
    """The progress of callers who do not want any."""


def _do_nothing() -> None:
    """For callers who have nothing to do between the claim and the start."""


class EmbeddedServices:
    """A real PostgreSQL 18 and a real Kafka broker in one data folder; a context manager.

    Args:
        data_dir: made when it does not exist; a second start goes on where the first ended.
        cache_dir: the user's cache folder of onceflow; the Kafka jars are kept below it.
        progress: called with one line per step, from two threads.
        extra_broker_properties: Kafka properties that win over ours.
        extra_postgres_settings: PostgreSQL settings that win over ours.
        kafka_listeners: further listeners of the broker, for proxies; see ``KafkaBroker.address``.
    """

    def __init__(
        self,
        *,
        data_dir: Path,
        cache_dir: Path,
        progress: Callable[[str], None] = _say_nothing,
        extra_broker_properties: Mapping[str, str] | None = None,
        extra_postgres_settings: Mapping[str, str] | None = None,
        kafka_listeners: Sequence[ExtraListener] = (),
    ) -> None:
        self.folder = DataFolder(data_dir)
        self.postgres = PostgresServer(self.folder, progress=progress, extra_settings=extra_postgres_settings)
        self.kafka = KafkaBroker(
            self.folder,
            cache_dir=cache_dir,
            progress=progress,
            extra_properties=extra_broker_properties,
            listeners=kafka_listeners,
        )

    @property
    def database_url(self) -> str:
        """The libpq address with its password; it may change when PostgreSQL is started again."""
        return self.postgres.url

    @property
    def kafka_bootstrap(self) -> str:
        """``host:port``; it may change when Kafka is started again."""
        return self.kafka.bootstrap

    def start(self, *, claimed: Callable[[], None] = _do_nothing) -> None:
        """Claim the folder and start both; returns when both answer.  On a failure nothing is left running.

        Args:
            claimed: called when the folder is ours and nothing is started yet; what it raises ends the start.

        Raises:
            Misconfigured: the folder is in use, another version's or unusable; the extra is missing; root.
            Unavailable: the jars cannot be fetched, or a service did not start.
        """
        self.folder.claim()
        try:
            claimed()
            self._start_both()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End both and give the folder free; bounded, and harmless when nothing runs."""
        with ThreadPoolExecutor(1, thread_name_prefix="onceflow-postgres") as pool:
            postgres = pool.submit(self.postgres.stop)
            self.kafka.stop()
            postgres.result()
        self.folder.release()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start_both(self) -> None:
        """Kafka starts in the calling thread, so that Ctrl-C reaches the long first download."""
        with ThreadPoolExecutor(1, thread_name_prefix="onceflow-postgres") as pool:
            postgres = pool.submit(self._start_postgres)
            self.kafka.start()
            self.kafka.wait_ready()
            postgres.result()

    def _start_postgres(self) -> None:
        self.postgres.start()
        self.postgres.wait_ready()
