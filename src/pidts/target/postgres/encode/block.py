"""Makes rows in the format of COPY BINARY: a count of fields, then each field after its length.

Compiled code makes the rows, see `block_kernel`. `PIDTS_KERNEL=python` chooses the slower, equal `plain`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pidts.binlog.machine_code import compiled
from pidts.target.postgres.encode.arrays import behind_length
from pidts.target.postgres.encode.binary import Wire

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"


def block(columns: Sequence[tuple[pa.Array, Wire]]) -> memoryview:
    """Returns the bytes of the rows. Each column is given as its values, for the NULLs, and as the encoded values."""
    if compiled():
        from pidts.target.postgres.encode.block_kernel import by_rows

        return by_rows(columns)
    return plain(columns)


def plain(columns: Sequence[tuple[pa.Array, Wire]]) -> memoryview:
    """Returns what `block_kernel.by_rows` must return."""
    heading = struct.pack(">h", len(columns))
    rows = zip(*(_values(data, written) for data, written in columns), strict=True)
    return memoryview(b"".join(heading + b"".join(map(behind_length, row)) for row in rows))


def _values(data: pa.Array, written: Wire) -> list[bytes | None]:
    if isinstance(written, np.ndarray):
        size, whole = written.itemsize, written.tobytes()
        valid = data.is_valid().to_pylist()
        return [whole[size * row : size * (row + 1)] if is_there else None for row, is_there in enumerate(valid)]
    found: list[bytes | None] = written.to_pylist()
    return found
