"""Logs: JSON lines on standard error, text on a terminal, secrets taken out of both.

Rule: standard output belongs to results.  One line is one event, whatever bytes are in it, and nothing that is logged
anywhere in the product gets past the redaction here.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import Processor

from onceflow.kafka_logs import SUPPRESSED, KafkaClientFilter
from onceflow.redaction import MASK, redacted

LogFormat = Literal["auto", "json", "console"]
LogLevel = Literal["debug", "info", "warning", "error"]

DEPTH_MAX = 4
_SECRET_NAMES = frozenset({"authorization", "body", "password", "secret", "signature", "stripe_signature", "value"})


class _Stream:
    """A stream that gives up on a line rather than on the service: a full disk must not stop the road."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except (OSError, ValueError):
            return 0

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError):
            return


class _NamedLogger(structlog.WriteLogger):
    """Writes lines, and knows the name that the module asked for its logger with."""

    def __init__(self, stream: Any, name: str) -> None:
        super().__init__(stream)
        self.name = name


def add_name(logger: Any, name: str, event_dict: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Say which part of the product speaks; a processor of structlog."""
    del name
    event_dict["logger"] = logger.name
    return event_dict


def redact_event(logger: Any, name: str, event_dict: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Take secrets out of every value; a processor of structlog."""
    del logger, name
    return {key: _clean(key, value, depth=0) for key, value in event_dict.items()}


def configure(
    *,
    level: LogLevel = "info",
    format: LogFormat = "auto",
    stream: TextIO | None = None,
) -> None:
    """Set up the logs of this process; call it once, before a service starts.

    Args:
        level: the least level that is written.
        format: ``auto`` writes text when the stream is a terminal and JSON lines otherwise.
        stream: standard error when left out.
    """
    target = sys.stderr if stream is None else stream
    terminal = target.isatty()
    render: Processor = structlog.processors.JSONRenderer()
    if format == "console" or (format == "auto" and terminal):
        render = structlog.dev.ConsoleRenderer(colors=terminal, exception_formatter=structlog.dev.plain_traceback)
    # Tracebacks as text and without the values of variables, which would be bodies and secrets.
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        redact_event,
    ]
    number = getattr(logging, level.upper())
    stream_file: Any = _Stream(target)
    structlog.configure(
        processors=[add_name, *shared, render],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=lambda *names: _NamedLogger(stream_file, names[0] if names else "onceflow"),
        cache_logger_on_first_use=True,
    )
    _take_over_library_logs(number, shared=shared, render=render, stream=stream_file)


def _take_over_library_logs(level: int, *, shared: list[Processor], render: Processor, stream: Any) -> None:
    """Send what libraries log through the standard library down the same road."""
    least = max(level, logging.WARNING)
    handler = logging.StreamHandler(stream)
    handler.addFilter(KafkaClientFilter(least))
    named: list[Processor] = [structlog.stdlib.add_logger_name, structlog.stdlib.ExtraAdder([SUPPRESSED])]
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*named, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, redact_event, render],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(least)


def _clean(name: str, value: Any, *, depth: int) -> Any:
    if name.lower() in _SECRET_NAMES:
        return MASK
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    if depth >= DEPTH_MAX:
        return "..." if isinstance(value, dict | list | tuple | set) else value
    if isinstance(value, dict):
        return {key: _clean(str(key), part, depth=depth + 1) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_clean("", part, depth=depth + 1) for part in value]
    return value if isinstance(value, int | float | bool | None) else redacted(str(value))
