"""The doctor's look at this host: releases of what is installed, settings, handlers.

Rule: every fault of the settings is a line; values are never shown.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import confluent_kafka
import psycopg.pq

from onceflow.doctor.checked import Checked, cross, crosses, tick
from onceflow.exit_codes import SETTINGS
from onceflow.handlers_loading import load_handlers
from onceflow.service_options import accesses
from onceflow.settings import LoadedSettings
from onceflow.settings_model import Settings
from onceflow_schemas.failure import Failure

PYTHON_MIN = (3, 11)


def releases() -> Iterator[Checked]:
    """Return what is installed."""
    found = f"Python {platform.python_version()}"
    if sys.version_info[:2] < PYTHON_MIN:
        yield cross("python", found, fix="Use Python 3.11 or newer.")
    else:
        yield tick("python", found)
    libpq = psycopg.pq.version()
    parts = [
        f"onceflow {_version('onceflow')}",
        f"confluent-kafka {_version('confluent-kafka')} (librdkafka {confluent_kafka.libversion()[0]})",
        f"psycopg {_version('psycopg')} (libpq {libpq // 10_000}.{libpq % 10_000}, {psycopg.pq.__impl__})",
    ]
    yield tick("packages", ", ".join(parts))


def settings_lines(loaded: LoadedSettings) -> Iterator[Checked]:
    """Return a line for each fault of the settings, or one tick."""
    for fault in loaded.faults:
        fix = "Mend it; `onceflow config show` prints every setting with its source."
        yield cross("settings", fault, fix=fix, status=SETTINGS)
    if not loaded.faults:
        yield tick("settings", f"{len(loaded.given)} are given, all can be used")


def handlers_line(name: str, *, folder: Path) -> list[Checked]:
    """Import the handlers as the processor does, and check them."""
    try:
        handlers = load_handlers(name, folder=folder)
        handlers.check()
    except Failure as failure:
        return crosses("handlers", failure, status=SETTINGS)
    return [tick("handlers", f"{name}: {', '.join(handlers.types())}")]


def stripe_keys_lines(settings: Settings) -> list[Checked]:
    """Return whether each account has an API key; no key is tried, since that would be a call."""
    try:
        found = accesses(settings)
    except Failure as failure:
        return crosses("stripe keys", failure, status=SETTINGS)
    return [tick("stripe keys", f"a key for {', '.join(one.account for one in found)} at {settings.stripe.api_base}")]


def stripe_log_lines(environment: Mapping[str, str]) -> list[Checked]:
    """Return a cross when Stripe's library would log whole requests and answers.

    The library itself reads this variable; at ``info`` it writes addresses, statuses and messages of errors (stripe 16,
    ``_util.py``, ``_api_requestor.py``).
    """
    if environment.get("STRIPE_LOG") != "debug":
        return []
    found = "STRIPE_LOG=debug: Stripe's library writes the bodies of all calls, with personal data, to standard error"
    return [cross("stripe log", found, fix="Unset STRIPE_LOG, or set it to info, where the workers are started.")]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "from a folder"
