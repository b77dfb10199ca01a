"""Columns of a set-based statement, packed for the wire in one go.

Rule: a column has one type, said by its class.  psycopg takes a list apart element by element in Python, which was a
fifth of the worker's time; these are joined from bytes in a few calls of C.

Form of a binary array: number of dimensions, 1 when a value is null, type of the elements, length, first index; then
each element as its length in 4 bytes (-1 for null) and its bytes (PostgreSQL's ``array_recv``).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import ClassVar
from uuid import UUID

import psycopg
from psycopg.abc import AdaptContext
from psycopg.adapt import Dumper
from psycopg.postgres import types
from psycopg.pq import Format

_SHORT_BYTES_MAX = 4_096
_LENGTHS = tuple(struct.pack("!i", length) for length in range(_SHORT_BYTES_MAX))
_NULL = struct.pack("!i", -1)
_FIRST_INDEX = 1


class Texts(list[str | None]):
    """A column of type text; the server casts it to whatever has a text form."""


class Blobs(list[bytes | None]):
    """A column of type bytea."""


class Integers(list[int]):
    """A column of type integer (32 bits)."""


class Bigints(list[int]):
    """A column of type bigint (64 bits)."""


class Uuids(list[UUID]):
    """A column of type uuid."""


class _ColumnDumper(Dumper):
    """What the columns have in common."""

    format = Format.BINARY
    element: ClassVar[str]

    def __init__(self, cls: type, context: AdaptContext | None = None) -> None:
        super().__init__(cls, context)
        self.oid = types[self.element].array_oid
        self._element_oid = types[self.element].oid
        encoding = "utf-8" if self.connection is None else self.connection.info.encoding
        self._encoding = "utf-8" if encoding == "ascii" else encoding

    def _packed(self, count: int, elements: bytes, *, has_null: bool = False) -> bytes:
        if count == 0:
            return struct.pack("!iii", 0, 0, self._element_oid)
        head = struct.pack("!iiiii", 1, int(has_null), self._element_oid, count, _FIRST_INDEX)
        return head + elements


class _TextsDumper(_ColumnDumper):
    element = "text"

    def dump(self, obj: Texts) -> bytes:
        encoding = self._encoding
        encoded = [None if text is None else text.encode(encoding) for text in obj]
        return self._packed(len(obj), _of_any_length(encoded), has_null=None in obj)


class _BlobsDumper(_ColumnDumper):
    element = "bytea"

    def dump(self, obj: Blobs) -> bytes:
        return self._packed(len(obj), _of_any_length(obj), has_null=None in obj)


class _IntegersDumper(_ColumnDumper):
    element = "int4"

    def dump(self, obj: Integers) -> bytes:
        return self._packed(len(obj), struct.pack("!" + "ii" * len(obj), *_with_size(obj, 4)))


class _BigintsDumper(_ColumnDumper):
    element = "int8"

    def dump(self, obj: Bigints) -> bytes:
        return self._packed(len(obj), struct.pack("!" + "iq" * len(obj), *_with_size(obj, 8)))


class _UuidsDumper(_ColumnDumper):
    element = "uuid"

    def dump(self, obj: Uuids) -> bytes:
        return self._packed(len(obj), _of_any_length([one.bytes for one in obj]))


def _of_any_length(values: Sequence[bytes | None]) -> bytes:
    pieces: list[bytes] = []
    for value in values:
        if value is None:
            pieces.append(_NULL)
        else:
            size = len(value)
            pieces.append(_LENGTHS[size] if size < _SHORT_BYTES_MAX else struct.pack("!i", size))
            pieces.append(value)
    return b"".join(pieces)


def _with_size(numbers: Iterable[int], size: int) -> list[int]:
    return [part for number in numbers for part in (size, number)]


for _column, _dumper in (
    (Texts, _TextsDumper),
    (Blobs, _BlobsDumper),
    (Integers, _IntegersDumper),
    (Bigints, _BigintsDumper),
    (Uuids, _UuidsDumper),
):
    psycopg.adapters.register_dumper(_column, _dumper)
