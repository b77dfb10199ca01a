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
    # Multiplied and xored, only the lower 32 bits count in the end, so they are cut off once per word and not thrice.
    for word in struct.unpack_from(f"<{whole // 4}I", data):
        mixed = (word * _MULTIPLIER) & _MASK
        state = (state * _MULTIPLIER ^ (mixed ^ mixed >> 24) * _MULTIPLIER) & _MASK
    rest = data[whole:]
    if rest:
        state ^= int.from_bytes(rest, "little")
        state = (state * _MULTIPLIER) & _MASK
    state ^= state >> 13
    state = (state * _MULTIPLIER) & _MASK
    return state ^ (state >> 15)
