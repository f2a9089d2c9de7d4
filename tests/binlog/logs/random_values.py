"""Makes random values as SQL literals: mostly ordinary ones, and often values at an edge."""

# Tables of characters are full of characters that look like others.
# ruff: noqa: RUF001

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from pidts.model import Kind

SCRIPTS = "aZ09 ~\\'\"%\t\n\x7fÄéßÿžŁğ€’Ωжїא۰กԱაア日本漢字ｱ①～中文汉한국ॐ℡﨑\u2028\ue000😀𠀋\U0010ffff"


def wholes(low: int, high: int) -> SearchStrategy[str]:
    edges = [low, high, 0, 1, -1, low + 1, high - 1, high // 2, high // 256]
    return st.one_of(st.integers(low, high), st.sampled_from([x for x in edges if low <= x <= high])).map(str)


def floats(width: Any) -> SearchStrategy[str]:
    edges = [0.0, 0.1, 1 / 3, 16777217.0, 1e-45, 5e-324, 3.4e38, 1.7e308, 123456.785, -0.005]
    any_float = st.floats(width=width, allow_nan=False, allow_infinity=False)
    return st.one_of(any_float, st.sampled_from(edges)).map(
        lambda value: f"{value!r}e0" if "e" not in repr(value) else repr(value)
    )


def moments(kind: Kind) -> SearchStrategy[str]:
    """Returns zero and partial dates, days that no month has, the first and last values of a type; all with
    microseconds.
    """
    fraction = st.one_of(st.integers(0, 999_999), st.sampled_from([0, 1, 500_000, 999_999])).map("{:06}".format)
    clock = st.builds(
        "{:02}:{:02}:{:02}.{}".format, st.integers(0, 23), st.integers(0, 59), st.integers(0, 59), fraction
    )
    if kind is Kind.TIME:
        spans = st.builds(
            "{}{:02}:{:02}:{:02}.{}".format,
            st.sampled_from(["", "-"]),
            st.one_of(st.integers(0, 837), st.just(0)),
            st.integers(0, 59),
            st.integers(0, 59),
            fraction,
        )
        ends = ["838:59:59", "-838:59:59", "838:59:58.999999", "-838:59:58.999999", "-00:00:00.000001", "00:00:00"]
        return st.one_of(spans, st.sampled_from(ends)).map("'{}'".format)
    if kind is Kind.TIMESTAMP:
        days = st.builds("{:04}-{:02}-{:02}".format, st.integers(1971, 2037), st.integers(1, 12), st.integers(1, 28))
        ends = ["1970-01-01 00:00:01", "2038-01-19 03:14:07.999999", "2038-01-19 03:14:07", "0000-00-00 00:00:00"]
        return st.one_of(st.builds("{} {}".format, days, clock), st.sampled_from(ends)).map("'{}'".format)
    days = st.builds("{:04}-{:02}-{:02}".format, st.integers(0, 9999), st.integers(0, 12), st.integers(0, 31))
    odd = [
        "0000-00-00",
        "2024-00-15",
        "2023-11-00",
        "2023-02-31",
        "0000-01-01",
        "0001-01-01",
        "9999-12-31",
        "0000-12-31",
    ]
    days = st.one_of(days, st.sampled_from(odd))
    if kind is Kind.DATE:
        return days.map("'{}'".format)
    return st.builds("{} {}".format, days, st.one_of(clock, st.just("23:59:59.999999"), st.just("00:00:00"))).map(
        "'{}'".format
    )


def texts(length: int) -> SearchStrategy[str]:
    """Returns a short text, sometimes repeated up to the column's length; it may end with spaces."""
    characters = st.one_of(st.sampled_from(SCRIPTS), st.characters(codec="utf-8"))
    short = st.text(characters, max_size=min(length, 12))
    full = st.builds(lambda one, size: one * size, characters, st.sampled_from([length, length - 1, length // 2]))
    return st.one_of(short, short, full, short.map(lambda text: f"{text}  "), st.just("x\0y")).map(_text)


def _text(text: str) -> str:
    return f"_utf8mb4 x'{text.encode().hex()}'" if text else "''"


def binaries(length: int) -> SearchStrategy[str]:
    """Returns bytes, some with zeros at the beginning or the end: the log omits a BINARY's trailing zeros."""
    raw = st.binary(max_size=min(length, 20))
    zeros = st.builds(lambda head, size: head + b"\0" * size, raw, st.integers(0, 4))
    full = st.builds(
        lambda one, size: one[:1] * size, st.binary(min_size=1, max_size=1), st.sampled_from([length, length // 2])
    )
    return st.one_of(raw, zeros, full).map(_bytes)


def _bytes(value: bytes) -> str:
    return f"repeat(x'{value[:1].hex()}', {len(value)})" if len(value) > 300 else f"x'{value.hex()}'"


def geometries(server: str, shape: str) -> SearchStrategy[str]:
    number = st.one_of(st.integers(-80, 80), st.floats(-80, 80)).map(repr)
    pair = st.builds("{} {}".format, number, number)
    line = st.lists(pair, min_size=2, max_size=6, unique=True).map(",".join)
    box = st.integers(1, 60).map(lambda side: f"(0 0,{side} 0,{side} {side},0 {side},0 0)")
    made: dict[str, SearchStrategy[str]] = {
        "point": pair.map("POINT({})".format),
        "linestring": line.map("LINESTRING({})".format),
        "polygon": box.map("POLYGON({})".format),
        "multipoint": st.lists(pair, min_size=1, max_size=4).map(",".join).map("MULTIPOINT({})".format),
        "multilinestring": line.map("MULTILINESTRING(({}))".format),
        "multipolygon": box.map("MULTIPOLYGON(({}))".format),
        "geometrycollection": st.one_of(
            st.builds("GEOMETRYCOLLECTION(POINT({}),LINESTRING({}))".format, pair, line),
            st.just("GEOMETRYCOLLECTION EMPTY") if server == "mysql97" else st.just("GEOMETRYCOLLECTION(POINT(1 2))"),
        ),
    }
    wkt = st.one_of(list(made.values())) if shape == "any" else made[shape]
    # MySQL 9.7 checks that a spatial reference system exists.
    return st.builds("st_geomfromtext('{}', {})".format, wkt, st.sampled_from([0, 4326, 3857]))


def documents() -> SearchStrategy[str]:
    """Returns JSON as an SQL expression: everything that JSON text can express, and SQL types that it cannot express."""
    word = st.text(st.one_of(st.sampled_from(SCRIPTS), st.characters(codec="utf-8")), max_size=9)
    scalar = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.sampled_from([0, -1, 32767, 32768, -32768, -32769, 65535, 65536, 2**31 - 1, 2**31, -(2**31), 2**32, 2**63]),
        st.floats(allow_nan=False, allow_infinity=False),
        st.sampled_from(
            [1e15, 1e16, 1e-4, 1e-5, 1e-15, 1e21, 123456789012345678.0, 4.095398469883106e16, -0.0, 100.0, 5e-324]
        ),
        word,
        st.builds(lambda text, size: text * size, word, st.sampled_from([20, 130, 8200])),
    )
    plain = st.recursive(
        scalar,
        lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(word, inner, max_size=5)),
        max_leaves=12,
    ).map(lambda value: f"cast({_text(json.dumps(value, ensure_ascii=False))} as json)")
    special = st.one_of(
        plain,
        wholes(-(10**30), 10**30).map(
            lambda number: f"cast({number[:-4] or 0}.{number[-4:].replace('-', '')} as decimal(40,4))"
        ),
        moments(Kind.DATE)
        .filter(lambda date: "00" not in date[5:] and date > "'0001")
        .map(lambda date: f"coalesce(cast({date} as date), 1)"),
        moments(Kind.TIME).map(lambda time: f"cast({time} as time(6))"),
        st.builds(
            "cast('{:04}-{:02}-{:02} 01:02:03.{:06}' as datetime(6))".format,
            st.integers(1, 9999),
            st.integers(1, 12),
            st.integers(1, 28),
            st.integers(0, 999_999),
        ),
        st.binary(max_size=40).map(lambda value: f"_binary x'{value.hex()}'"),
        wholes(0, 2**64 - 1).map(lambda number: f"cast({number} as unsigned)"),
        wholes(0, 255).map(lambda number: f"b'{int(number):b}'"),
        st.just("cast(2024 as year)"),
        st.just("st_geomfromtext('POINT(1 2.5)')"),
    )
    nested = st.lists(special, min_size=1, max_size=4).map(lambda items: f"json_array({', '.join(items)})")
    named = st.lists(st.tuples(word, special), min_size=1, max_size=4).map(
        lambda items: f"json_object({', '.join(f'{_text(key)}, {value}' for key, value in items)})"
    )
    many = st.integers(1, 3000).map(lambda size: f"cast(concat('[0', repeat(',{size}', {size}), ']') as json)")
    return st.one_of(plain, plain, nested, named, many)
