"""JSON read so that no two readers can disagree about what it says.

Rule: a document is accepted only when every reader sees the same thing in it: no key twice, no NaN, no number out of
a float's range, at most 64 levels.  A body that orjson reads and writes back with the same bytes, white space and
needless escapes left aside, has none of these faults, so the usual body costs one parse; every other body goes through
the slow, exact reader.  It is written back in the form in which Stripe sends it, so that there is little to leave aside.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import orjson

DEPTH_MAX = 64
"""Deepest nesting accepted, counted in open brackets."""

_SPACE = b" \t\r\n"
_DEEPEST_LINE = b"\n" + b"  " * DEPTH_MAX
_EMPTIES = ((re.compile(rb"\{\n *\}"), b"{}"), (re.compile(rb"\[\n\n *\]"), b"[]"))
"""How Stripe writes what is empty, the usual first.  A text holds no line break, so these stand between texts only."""
_HARMLESS_ESCAPES = ((b"\\u0026", b"&"), (b"\\u003c", b"<"), (b"\\u003e", b">"))
"""What servers that also write HTML escape without need.  After an escaped backslash the replacement only costs time."""

_NUL_ESCAPE = b"\\u0000"
_UNSAFE_ESCAPE = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
_LONG_INTEGER = re.compile(rb"(?<![0-9])[0-9]{4301}")
"""Python refuses to convert more than 4,300 digits, unless it is told otherwise."""

_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_BRACKET = re.compile(r"[\[\]{}]")
_UNSAFE_TEXT = re.compile("[\x00\ud800-\udfff]")
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@dataclass(slots=True)
class Document:
    """What a body says.  ``problem`` is a failure code, and then ``value`` may still hold the outermost object.

    ``replaced`` tells that NUL or lone surrogates were replaced by U+FFFD in ``value``: PostgreSQL's text and
    UTF-8 cannot hold them, and the exact bytes stay in the record.
    """

    value: Any = None
    problem: str | None = None
    detail: str = ""
    replaced: bool = False
    outermost_doubled: frozenset[str] = frozenset()


def read_strictly(body: bytes) -> Document:
    """Read one JSON document; never raises, faults are told in ``problem``."""
    try:
        value = orjson.loads(body)
        written = orjson.dumps(value, option=orjson.OPT_INDENT_2)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return _read_slowly(body)
    # Most bodies have no escape at all, and a look for one byte is ten times as fast as one for six.
    has_escapes = b"\\" in body
    plain = _without_harmless_escapes(body) if has_escapes else body
    same = written == plain or _is_same(written, plain)
    # What stands inside the last bracket allowed has a line of its own, unless nothing stands in it.
    if not same or (has_escapes and _NUL_ESCAPE in body) or _DEEPEST_LINE in written:
        return _read_slowly(body)
    return Document(value)


def _without_harmless_escapes(body: bytes) -> bytes:
    """Spell as letters what Stripe escapes without need, such as ``&`` in URLs."""
    for escape, letter in _HARMLESS_ESCAPES:
        body = body.replace(escape, letter)
        if b"\\" not in body:
            break
    return body


def _is_same(written: bytes, body: bytes) -> bool:
    """Compare with white space left aside: first where Stripe writes it and no option of orjson does, then everywhere.

    It may be left aside inside texts too, and so may escapes, because neither changes how many members an object has: a
    body has as many as what was read from it only when no key stands twice.
    """
    for empty, short in _EMPTIES:
        body = empty.sub(short, body)
        if written == body:
            return True
    return written.translate(None, _SPACE) == body.translate(None, _SPACE)


def _read_slowly(body: bytes) -> Document:
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        return Document(problem="not_utf8", detail=f"byte {error.start} is not UTF-8")
    if _is_too_deep(text):
        return Document(problem="too_deep", detail=f"nested deeper than {DEPTH_MAX} levels")
    # NUL and lone surrogates can only stand in a body as escapes, so without those no text has to be looked at.
    reader = _Reader(cleans=_UNSAFE_ESCAPE.search(body) is not None)
    try:
        value = json.loads(
            text,
            object_pairs_hook=reader.take_object,
            parse_constant=reader.take_constant,
            parse_float=reader.take_float,
            parse_int=reader.take_integer if _LONG_INTEGER.search(body) else None,
        )
    except ValueError as error:
        return Document(problem="not_json", detail=str(error).partition(":")[0])
    value = reader.clean(value)
    return Document(value, reader.problem, reader.detail, reader.replaced, reader.doubled)


def _is_too_deep(text: str) -> bool:
    """Look for the first bracket that is one too many, by a scan that does not recurse."""
    if text.count("{") + text.count("[") <= DEPTH_MAX:
        return False
    depth = 0
    for bracket in _BRACKET.finditer(_STRING.sub("", text)):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > DEPTH_MAX:
            return True
    return False


class _Reader:
    """Hooks for the standard library's parser: they note the first fault and go on, so that an id can be read."""

    def __init__(self, *, cleans: bool) -> None:
        self._cleans = cleans
        self.problem: str | None = None
        self.detail = ""
        self.replaced = False
        self.doubled: frozenset[str] = frozenset()

    def _note(self, problem: str, detail: str) -> None:
        if self.problem is None:
            self.problem, self.detail = problem, detail

    def take_object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if self._cleans:
            pairs = [(self._text(key), self.clean(value)) for key, value in pairs]
        found = dict(pairs)
        # The outermost object is finished last, so the last assignment is about it.
        self.doubled = frozenset()
        if len(found) != len(pairs):
            # Counted in one pass: a signed body of 200,000 keys may not hold the reader up.
            counts = Counter(key for key, _ in pairs)
            self.doubled = frozenset(key for key, count in counts.items() if count > 1)
            self._note("duplicate_key", f"the key {min(self.doubled)[:60]!a} stands twice in one object")
        return found

    def take_constant(self, name: str) -> None:
        self._note("bad_number", f"{name} is not a number")

    def take_float(self, text: str) -> float:
        number = float(text)
        if not math.isfinite(number):
            self._note("bad_number", "a number is out of range")
        return number

    def take_integer(self, text: str) -> int | None:
        try:
            return int(text)
        except ValueError:
            self._note("bad_number", f"an integer has {len(text)} digits")
            return None

    def clean(self, value: Any) -> Any:
        """Replace what PostgreSQL's text cannot hold; objects inside were cleaned when they were finished."""
        if not self._cleans:
            return value
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list):
            return [self.clean(item) for item in value]
        return value

    def _text(self, text: str) -> str:
        if _UNSAFE_TEXT.search(text) is None:
            return text
        self.replaced = True
        return _UNSAFE_TEXT.sub(REPLACEMENT, text)
