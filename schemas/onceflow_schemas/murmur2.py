"""Kafka's murmur2 hash, so that keys land on the same partition for Java and Python producers.

Rule: bit-for-bit the function of ``org.apache.kafka.common.utils.Utils.murmur2``; lanes are computed with it,
so a change here would move outcomes to other lanes.  The vectors in ``vectors/murmur2.json`` hold it.
"""

from __future__ import annotations

import struct

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the hash of ``data`` as an unsigned 32-bit integer."""
    length = len(data)
    state = (_SEED ^ length) & _MASK
    whole = length & ~3
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        mixed = (word * _MULTIPLIER) & _MASK
        mixed ^= mixed >> 24
        mixed = (mixed * _MULTIPLIER) & _MASK
        state = ((state * _MULTIPLIER) & _MASK) ^ mixed
    rest = data[whole:]
    if rest:
        state ^= int.from_bytes(rest, "little")
        state = (state * _MULTIPLIER) & _MASK
    state ^= state >> 13
    state = (state * _MULTIPLIER) & _MASK
    return state ^ (state >> 15)
