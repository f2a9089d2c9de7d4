"""A MySQL GTID set as a replica sends it to ask for everything else."""

from __future__ import annotations

import struct
import uuid

from pidts.model import MySqlGtidSet

_TAGGED = 1


def encode_gtid_set(gtids: MySqlGtidSet) -> bytes:
    """Count of members, then uuid and half-open intervals of each.

    Servers that know tags tell the two forms apart by the count's first and last byte, which no plain count sets.
    """
    tagged = any(tag for (_, tag), _ in gtids.members)
    count = len(gtids.members)
    parts = [struct.pack("<Q", _TAGGED << 56 | count << 8 | _TAGGED if tagged else count)]
    for (server, tag), intervals in gtids.members:
        parts.append(uuid.UUID(server).bytes)
        if tagged:
            # A string of fewer than 64 characters: its length, shifted by the bit that would say "more bytes follow".
            parts.append(bytes([len(tag) << 1]) + tag.encode())
        parts.append(struct.pack("<Q", len(intervals)))
        parts += [struct.pack("<QQ", first, last + 1) for first, last in intervals]
    return b"".join(parts)
