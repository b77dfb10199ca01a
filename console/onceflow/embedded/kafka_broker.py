"""One real Kafka broker (KRaft, broker and controller in one process) on a folder of its own.

Rule: the folder decides who the broker is.  Cluster id, version and ports are remembered in it; the configuration
is written anew at every start.  A folder that was formatted is never formatted again.
"""

from __future__ import annotations

import base64
import json
import logging
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from onceflow.embedded import broker_properties as properties
from onceflow.embedded.aot_cache import MAIN_CLASS, make_aot_cache, quick_flags, recording_flags
from onceflow.embedded.child_process import (
    Command,
    ends_within,
    last_line,
    log_since,
    log_size,
    open_log,
    run_to_end,
    start_child,
    stop_child,
)
from onceflow.embedded.data_folder import DataFolder, damaged, write_durably, wrong_version
from onceflow.embedded.former_self import ended_unclean, wait_fenced
from onceflow.embedded.java_runtime import ENVIRONMENT, TOOL_HEAP_MB, java_command
from onceflow.embedded.kafka_jars import KAFKA_VERSION, ensure_jars
from onceflow.embedded.ports import HOST, REMEMBERED_GRACE_SECONDS, accepts_connections, claim_ports, is_free
from onceflow.embedded.quick_start import ensure_quick_start
from onceflow_schemas.failure import Unavailable

READY_TIMEOUT_SECONDS = 60.0
FORMAT_TIMEOUT_SECONDS = 60.0
STOP_STEPS = ((signal.SIGTERM, 15.0),)
RECORDING_READY_SECONDS_MAX = 120.0
RECORDING_STOP_STEPS = ((signal.SIGTERM, 90.0),)
"""At its end a recorded run writes 60 MB, with 2 s of CPU."""
ENDED_BY_TERM = 128 + signal.SIGTERM
START_TRIES_MAX = 5
PASSING = ("Address already in use", "Failed to acquire lock on file .lock")
POLL_SECONDS = 0.05
METADATA_TIMEOUT_SECONDS = 1.0
CLUSTER_ID_BYTES = 16

# librdkafka complains on stderr about a broker that is not up yet; that is what we are waiting for.
_silent = logging.getLogger("onceflow.embedded.kafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


class KafkaBroker:
    """A broker that can be started, killed and started again on the same folder.

    Args:
        folder: the claimed data folder.
        cache_dir: see ``ensure_jars``.
        progress: called with one line per step.
        extra_properties: broker properties that win over ours.
        listeners: further listeners; ``address`` gives where each one listens.
        recording: where Java writes at its end what a quick start needs; such a run itself starts without one.
    """

    def __init__(
        self,
        folder: DataFolder,
        *,
        cache_dir: Path,
        progress: Callable[[str], None],
        extra_properties: Mapping[str, str] | None = None,
        listeners: Sequence[properties.ExtraListener] = (),
        recording: Path | None = None,
    ) -> None:
        self._folder = folder
        self._cache_dir = cache_dir
        self._progress = progress
        self._extra = dict(extra_properties or {})
        self._listeners = tuple(listeners)
        self._recording = recording
        self._quick_start: Path | None = None
        self._jars: list[Path] = []
        self._ports: dict[str, int] = {}
        self._child: subprocess.Popen[bytes] | None = None
        self._jvm_log_start = self._broker_log_start = 0
        self._started_at = 0.0
        self.cluster_id = ""

    @property
    def bootstrap(self) -> str:
        """``127.0.0.1:<port>`` of the latest start."""
        return self.address(properties.CLIENT_LISTENER)

    def address(self, listener: str) -> str:
        """Return where the broker itself listens for the named listener, whatever it advertises."""
        return f"{HOST}:{self._ports[listener]}"

    @property
    def pid(self) -> int | None:
        """The process id of Java itself; None before the first start."""
        return None if self._child is None else self._child.pid

    def poll(self) -> int | None:
        """Return the exit code of a broker that has ended, None while it runs."""
        assert self._child is not None, "the broker was never started"
        return self._child.poll()

    def _ends_within(self, seconds: float) -> bool:
        """Wait for its end, at most so long; True when it has ended."""
        assert self._child is not None, "the broker was never started"
        return ends_within(self._child, seconds)

    def start(self) -> None:
        """Fetch, format and start what needs it; returns when Java runs, which is before it answers.

        Raises:
            Unavailable: ``download_failed`` or ``service_failed``.
            Misconfigured: the folder is another version's, or cannot be used.
        """
        assert self._child is None or self._child.poll() is not None, "the broker runs already"
        self.cluster_id = self._identity()
        self._jars = ensure_jars(self._cache_dir, progress=self._progress)
        if self._recording is None:
            self._quick_start = ensure_quick_start(self._jars, make=self._make_quick_start, progress=self._progress)
        self._started_at = time.monotonic()
        self._choose_ports(REMEMBERED_GRACE_SECONDS)
        self._format()
        if ended_unclean(self._folder.kafka):
            self._fence_former_self()
        self._launch()

    def wait_ready(self, timeout_seconds: float = READY_TIMEOUT_SECONDS) -> None:
        """Wait until the broker answers and leads all its partitions.

        A broker that ends at once because its port was taken meanwhile, or because an older one still holds the
        folder, is started again a few times.

        Raises:
            Unavailable: ``service_failed``.
        """
        assert self._child is not None, "the broker was never started"
        deadline = time.monotonic() + timeout_seconds
        tries = 1
        while True:
            ended = self._child.poll() is not None
            if not ended and self._answers():
                break
            if time.monotonic() >= deadline or (ended and (tries >= START_TRIES_MAX or not self._may_retry())):
                raise self._failure("did not start" if ended else f"did not answer within {timeout_seconds:.0f} s")
            if ended:
                tries += 1
                self._launch()
            self._ends_within(POLL_SECONDS)
        self._progress(f"kafka: ready on {self.bootstrap} after {time.monotonic() - self._started_at:.1f} s")

    def stop(self) -> None:
        """End the broker cleanly, by force when it takes too long; harmless when it does not run."""
        if self._child is not None:
            stop_child(self._child, STOP_STEPS)

    def _make_quick_start(self, scratch: Path) -> Path:
        return make_aot_cache(scratch, jars=self._jars, record=self._record)

    def _record(self, data: Path, recording: Path) -> None:
        """Run a broker of the same command once, on a folder and ports of its own.

        Raises:
            Unavailable: ``service_failed``.
        """
        folder = DataFolder(data)
        folder.claim()
        run = KafkaBroker(folder, cache_dir=self._cache_dir, progress=lambda _line: None, recording=recording)
        try:
            run.start()
            run.wait_ready(RECORDING_READY_SECONDS_MAX)
            assert run._child is not None, "it was started"
            if stop_child(run._child, RECORDING_STOP_STEPS) != ENDED_BY_TERM or not recording.exists():
                raise run._failure("did not record its run")
        finally:
            # Nothing is recorded by a run that was broken off, so it need not end in order.
            if run._child is not None:
                stop_child(run._child, ())
            folder.release()

    def _identity(self) -> str:
        """Return the cluster id of the folder; a new folder gets a random one, so that no two look like one cluster."""
        path = self._folder.kafka / "identity.json"
        if not path.exists():
            cluster_id = base64.urlsafe_b64encode(secrets.token_bytes(CLUSTER_ID_BYTES)).decode("ascii").rstrip("=")
            write_durably(path, json.dumps({"cluster_id": cluster_id, "kafka_version": KAFKA_VERSION}))
        try:
            identity = json.loads(path.read_text(encoding="ascii"))
            version, cluster_id = str(identity["kafka_version"]), str(identity["cluster_id"])
            may_go_on = may_continue(version, KAFKA_VERSION)
        except (ValueError, KeyError, TypeError) as error:
            raise damaged(path) from error
        if not may_go_on:
            raise wrong_version(self._folder.kafka, found=f"Kafka {version}", ours=f"Kafka {KAFKA_VERSION}")
        return cluster_id

    def _choose_ports(self, grace_seconds: float) -> None:
        names = [
            properties.CLIENT_LISTENER,
            properties.CONTROLLER_LISTENER,
            *(listener.name for listener in self._listeners),
        ]
        self._ports = claim_ports(self._folder.kafka / "ports.json", names, grace_seconds=grace_seconds)

    def _format(self) -> None:
        """Format under another name and rename, so that a format that was cut off is never taken for a whole one."""
        log = self._folder.kafka / properties.LOG_FOLDER
        if log.exists():
            return
        self._progress("kafka: making the data folder")
        unfinished = log.with_name("log.new")
        shutil.rmtree(unfinished, ignore_errors=True)
        self._write_properties("format.properties", {"log.dirs": unfinished.name})
        finished = run_to_end(
            self._command(
                java_command(
                    "kafka.tools.StorageTool",
                    # One word with `=`: an id that begins with a dash would be taken for an option.
                    ["format", f"--cluster-id={self.cluster_id}", "-c", "format.properties"],
                    jars=self._jars,
                    heap_mb=TOOL_HEAP_MB,
                    flags=quick_flags(self._quick_start),
                )
            ),
            timeout_seconds=FORMAT_TIMEOUT_SECONDS,
        )
        if finished.exit_code != 0 or not (unfinished / "meta.properties").exists():
            raise Unavailable(
                "service_failed",
                f"formatting the Kafka folder ended with {finished.exit_code}; it said: {last_line(finished.output)}",
                "Look at the free space of the disk and at the message.",
            )
        unfinished.rename(log)

    def _fence_former_self(self) -> None:
        """See ``former_self``; a few tries, because its port may be taken and an older one may still end.

        Raises:
            Unavailable: ``service_failed``; starting without it could lose a confirmed transaction.
        """
        log = self._folder.logs / "broker-fence.log"
        text = properties.log4j_text(f"../logs/{log.name}")
        for _ in range(START_TRIES_MAX):
            log.unlink(missing_ok=True)
            self._write_text("fence.properties", properties.property_text(properties.fencing_properties(self._ports)))
            self._start_java("fence.properties", log4j=text)
            try:
                fenced = wait_fenced(lambda: _read(log), ends_within=self._ends_within)
            finally:
                self.stop()
            if fenced:
                return
            if not self._may_retry():
                break
        raise self._failure("could not fence its former self")

    def _launch(self) -> None:
        self._write_properties("broker.properties", {})
        self._start_java("broker.properties", log4j=properties.log4j_text())

    def _start_java(self, properties_file: str, *, log4j: str) -> None:
        self._write_text("log4j2.properties", log4j)
        (self._folder.kafka / "tmp").mkdir(exist_ok=True)
        argv = java_command(
            MAIN_CLASS,
            [properties_file],
            jars=self._jars,
            flags=quick_flags(self._quick_start) if self._recording is None else recording_flags(self._recording),
            properties={"log4j2.configurationFile": "log4j2.properties", "java.io.tmpdir": "tmp"},
        )
        self._jvm_log_start, self._broker_log_start = log_size(self._jvm_log), log_size(self._broker_log)
        with open_log(self._jvm_log) as log:
            self._child = start_child(self._command(argv), log=log)

    def _command(self, argv: Sequence[str]) -> Command:
        return Command(argv, directory=self._folder.kafka, death_signal=signal.SIGKILL, environment=ENVIRONMENT)

    def _write_properties(self, name: str, changes: Mapping[str, str]) -> None:
        values = properties.broker_properties(self._ports, listeners=self._listeners, extra=self._extra)
        self._write_text(name, properties.property_text({**values, **changes}))

    def _write_text(self, name: str, text: str) -> None:
        (self._folder.kafka / name).write_text(text, encoding="ascii")

    def _answers(self) -> bool:
        """Say whether *this* broker answers (another cluster may sit on the port) and every partition has a leader."""
        if not accepts_connections(self._ports[properties.CLIENT_LISTENER]):
            return False
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0}, logger=_silent)
        try:
            cluster = client.list_topics(timeout=METADATA_TIMEOUT_SECONDS)
        except KafkaException:
            return False
        partitions = [part for topic in cluster.topics.values() for part in topic.partitions.values()]
        same = cluster.cluster_id == self.cluster_id
        return same and bool(cluster.brokers) and all(partition.leader >= 0 for partition in partitions)

    @property
    def _jvm_log(self) -> Path:
        return self._folder.logs / "kafka-jvm.log"

    def _said(self) -> str:
        """Return the end of what the latest process wrote; what it wrote past its logging comes last."""
        broker = log_since(self._broker_log, self._broker_log_start)
        return broker + log_since(self._jvm_log, self._jvm_log_start)

    def _may_retry(self) -> bool:
        """Say whether the end of the broker passes by itself; ports that were taken meanwhile are replaced here."""
        if not all(is_free(port) for port in self._ports.values()):
            self._choose_ports(0.0)
            return True
        said = self._said()
        return any(text in said for text in PASSING)

    @property
    def _broker_log(self) -> Path:
        return self._folder.logs / "broker.log"

    def _failure(self, what: str) -> Unavailable:
        said = last_line(self._said())
        return Unavailable(
            "service_failed",
            f"the Kafka broker {what}{f'; it said: {said}' if said else ''}",
            f"Read {self._broker_log} and {self._jvm_log}.",
        )


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def may_continue(written_by: str, ours: str) -> bool:
    """Say whether a folder of one version may be used by another: the same major version, and never an older one."""
    theirs, mine = ([int(number) for number in version.split(".")] for version in (written_by, ours))
    return theirs[0] == mine[0] and theirs <= mine
