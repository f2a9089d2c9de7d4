"""Converts geometries between the source's form and that of PostGIS.

MySQL and MariaDB store four bytes of SRID (the number of the coordinate system), little-endian, then WKB in the same
byte order. PostGIS reads EWKB: a SRID other than 0 comes after the type, and the type's third highest bit is set. In
both forms, x is the longitude.
"""

from __future__ import annotations

import pyarrow as pa

from pidts.model import Halted

_HIGHEST_SRID = 998_999
"""The highest SRID of PostGIS, which replaces a higher SRID with another."""
_HAS_SRID = 0x20000000
_HEAD = 9
"""The number of bytes of SRID, byte order and type."""


class UnfitGeometryError(Halted):
    """The error for a value that PostGIS cannot store."""

    place: int = 0
    """The index of the value's row among the rows that are written."""


def _unfit(column: str, place: int, what: str) -> UnfitGeometryError:
    error = UnfitGeometryError(
        "type-not-possible",
        f"column {column} holds {what}",
        todo="Change the value on the source. Or store the column as bytea: remove it from pidts.types, drop the table "
        "on the target, and copy it again with pidts run TASK --resync TABLE",
    )
    error.place = place
    return error


def ewkb_text(column: str, data: pa.Array) -> pa.Array:
    """Returns the values as hexadecimal digits that PostGIS reads."""
    values = enumerate(data.to_pylist())
    return pa.array([None if one is None else _ewkb(column, place, one).hex() for place, one in values], pa.string())


def _ewkb(column: str, place: int, value: bytes) -> bytes:
    if len(value) < _HEAD or value[4] != 1:
        raise _unfit(column, place, f"{len(value)} bytes that are not a geometry as MySQL stores it")
    srid = int.from_bytes(value[:4], "little")
    if srid > _HIGHEST_SRID:
        what = f"a geometry with the SRID {srid}, and PostGIS has SRIDs up to {_HIGHEST_SRID}"
        raise _unfit(column, place, what)
    if not srid:
        return value[4:]
    kind = int.from_bytes(value[5:_HEAD], "little") | _HAS_SRID
    return value[4:5] + kind.to_bytes(4, "little") + value[:4] + value[_HEAD:]


def stored_hex(name: str, type_name: str) -> str:
    """Returns SQL that converts a PostGIS value to the hexadecimal digits of the source's bytes."""
    schema = type_name.rpartition(".")[0]
    srid = f"{schema}.st_srid({name})"
    digits = " || ".join(f"lpad(to_hex({srid} >> {shift} & 255), 2, '0')" for shift in (0, 8, 16, 24))
    return f"({digits} || encode({schema}.st_asbinary({name}, 'NDR'), 'hex'))"
