"""The hardware and the settings under which the figures hold.

Rule: a ratio without them means nothing; whatever decides how long a COMMIT or an acknowledgement takes is asked of the
running services, not of our files.
"""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psycopg
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from bench.children import ROOT

POSTGRES_SETTINGS = (
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_sync_method",
    "shared_buffers",
)
BROKER_SETTINGS = ("log.flush.interval.messages", "min.insync.replicas", "num.io.threads", "num.network.threads")
PACKAGES = ("confluent-kafka", "fastapi", "orjson", "psycopg", "uvicorn")
ASK_SECONDS = 10.0


def about_machine(folder: Path) -> dict[str, str]:
    """Return what the hardware is; ``folder`` is where the services keep their data."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": _cpu_name(),
        "cores": str(os.cpu_count()),
        "memory_gib": f"{memory_bytes / 2**30:.0f}",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "data_on": _file_system(folder),
        **{package: version(package) for package in PACKAGES},
        "commit": _commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "load_average": " ".join(f"{load:.1f}" for load in os.getloadavg()),
    }


def about_services(bootstrap: str, database_url: str) -> dict[str, str]:
    """Return the services' settings that decide about durability and speed."""
    with psycopg.connect(database_url) as connection:
        rows = {name: connection.execute(f"SHOW {name}".encode()).fetchone() for name in POSTGRES_SETTINGS}
    found = {f"postgres {name}": str(row[0]) for name, row in rows.items() if row is not None}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    brokers = admin.list_topics(timeout=ASK_SECONDS).brokers
    resource = ConfigResource(ResourceType.BROKER, str(next(iter(brokers))))
    entries = admin.describe_configs([resource])[resource].result(ASK_SECONDS)
    found |= {f"kafka {name}": str(entries[name].value) for name in BROKER_SETTINGS if name in entries}
    return found | {"kafka brokers": str(len(brokers)), "producers": "acks=all, idempotent"}


def _cpu_name() -> str:
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _file_system(folder: Path) -> str:
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text("utf-8").splitlines()]
    inside = [(point, kind) for point, kind in mounts if folder.resolve().is_relative_to(point)]
    return max(inside, key=lambda mount: len(mount[0]))[1]


def _commit() -> str:
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=10
    )
    return asked.stdout.strip() or "unknown"
