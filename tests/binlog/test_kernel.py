"""Compiled code gives the same rows and the same errors as plain code, bit for bit."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from functools import cache

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import extending
from tests.binlog.logs.scenarios import Recording, kept, load
from tests.binlog.logs.twins import decoded, difference
from tests.examples import examples

from pidts.binlog import Format, jit
from pidts.binlog.kernel import buffers, inflate, routed
from pidts.binlog.kernel.texts import has_ascii
from pidts.binlog.machine_code import cache_folder
from pidts.binlog.values import charsets, json
from pidts.model import Column, ColumnType, DecodeError, Halted, Kind, Lsn, Table, TableName

from .test_fuzz import unsealed

CASES = [name for name in kept() if load(name).tables]
MOVING = [name for name in CASES if name.endswith("transactions")]
PLAIN = Format(checksum=False, server_version="9.7.0", is_mariadb=False)
NAME = TableName("s", "t")


def arguments(recording: Recording) -> dict:
    return {
        "format": recording.format,
        "log_file": recording.log_file,
        "change_no": 3,
        "structures": recording.structures,
    }


@pytest.mark.parametrize("name", kept())
def test_recordings_of_servers_give_the_same_rows(name):
    recording = load(name)
    assert difference(recording.events, **arguments(recording)) is None


@pytest.mark.parametrize("name", CASES)
def test_without_checksums_too(name):
    recording, pieces = unsealed(name)
    raw = b"".join(pieces)
    assert difference(raw, **arguments(recording) | {"format": PLAIN}) is None


@pytest.mark.parametrize("name", MOVING)
def test_continuing_after_any_row_gives_the_same_rest(name):
    recording = load(name)
    lsns = {
        lsn
        for batch in decoded("python", recording.events, **arguments(recording))
        for lsn in batch.rows.column("lsn").to_pylist()
    }
    for lsn in sorted(lsns)[::5]:
        for change_no in (2, 3, 4):
            after = Lsn(change_no, *struct.unpack(">IQI", lsn[4:]))
            assert difference(recording.events, after=after, **arguments(recording)) is None


@pytest.mark.parametrize("name", MOVING)
@pytest.mark.parametrize("size", [1, 20, 300])
def test_batches_end_at_the_same_rows(name, size, monkeypatch):
    monkeypatch.setattr("pidts.binlog.decode.BATCH_BYTES", size)
    recording = load(name)
    assert difference(recording.events, **arguments(recording)) is None


@pytest.mark.parametrize("name", CASES)
def test_memory_that_grows_byte_by_byte_holds_the_same(name, monkeypatch):
    monkeypatch.setattr(buffers, "_FIRST_ROWS", 1)
    monkeypatch.setattr(buffers, "_FIRST_TEXT", 1)
    recording = load(name)
    assert difference(recording.events, **arguments(recording)) is None


@pytest.mark.parametrize("name", MOVING)
def test_a_damaged_byte_is_found_at_the_same_place(name):
    recording = load(name)
    for place in range(0, len(recording.events), len(recording.events) // 40):
        raw = bytearray(recording.events)
        raw[place] ^= 0x10
        assert difference(bytes(raw), **arguments(recording)) is None
        assert difference(recording.events[:place], **arguments(recording)) is None


def packed(number: int) -> bytes:
    return bytes([number]) if number < 251 else b"\xfc" + struct.pack("<H", number)


def log_of(forms: list[tuple[ColumnType, int, bytes]], events: list[tuple[int, bytes]]) -> tuple[bytes, Table]:
    """Returns a table map and row events of its table."""
    types = bytes(wire for _, wire, _ in forms)
    metadata = b"".join(data for _, _, data in forms)
    count = len(forms)
    body = b"\x07" + bytes(7) + b"\1s\0\1t\0" + packed(count) + types + packed(len(metadata)) + metadata
    pieces = [(19, body + bytes((count + 7) // 8))]
    for kind, images in events:
        held = bytes([0xFF] * ((count + 7) // 8)) * (2 if kind == 31 else 1)
        pieces.append((kind, b"\x07" + bytes(7) + b"\2\0" + packed(count) + held + images))
    raw, at = b"", 4
    for kind, body in [*pieces, (16, bytes(8))]:
        size = 19 + len(body)
        at += size
        raw += struct.pack("<IBIIIH", 1, kind, 1, size, at, 0) + body
    columns = tuple(Column(f"c{place}", kind) for place, (kind, _, _) in enumerate(forms))
    return raw, Table(NAME, columns)


def fixed(size: int) -> st.SearchStrategy[bytes]:
    return st.one_of(st.binary(min_size=size, max_size=size), st.just(bytes(size)), st.just(b"\xff" * size))


def sized(prefix: int, content: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return content.map(lambda data: len(data).to_bytes(prefix, "little") + data)


ANY = st.one_of(st.binary(max_size=40), st.text(max_size=12).map(str.encode), st.just(b"ascii"))
_DIGITS = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def decimal_form(precision: int, scale: int) -> tuple:
    """Returns a type of a decimal column as the log describes it, and a strategy for the bytes of a value: mostly
    valid, sometimes random.
    """
    whole = precision - scale
    digits = [whole % 9] + [9] * (whole // 9) + [9] * (scale // 9) + [scale % 9]
    size = sum(4 if count == 9 else _DIGITS[count] for count in digits)

    def layout(values: list[int], negative: bool) -> bytes:
        raw = bytearray(b"".join((v % 10**n).to_bytes(_DIGITS[n], "big") for v, n in zip(values, digits, strict=True)))
        raw[0] |= 0x80
        return bytes(byte ^ 0xFF for byte in raw) if negative else bytes(raw)

    good = st.builds(layout, st.lists(st.integers(0, 10**9), min_size=len(digits), max_size=len(digits)), st.booleans())
    kind = ColumnType(Kind.DECIMAL, precision=precision, scale=scale)
    return kind, 246, bytes([precision, scale]), st.one_of(good, good, good, fixed(size))


def date_bytes(days: int) -> bytes:
    return days.to_bytes(3, "little")


FORMS = [
    *[(ColumnType(kind, unsigned=sign), wire, b"", fixed(size)) for kind, wire, size in [
        (Kind.TINYINT, 1, 1), (Kind.SMALLINT, 2, 2), (Kind.MEDIUMINT, 9, 3), (Kind.INT, 3, 4), (Kind.BIGINT, 8, 8),
    ] for sign in (False, True)],
    (ColumnType(Kind.FLOAT), 4, b"\4", fixed(4)),
    (ColumnType(Kind.DOUBLE), 5, b"\x08", fixed(8)),
    (ColumnType(Kind.YEAR), 13, b"", fixed(1)),
    *[(ColumnType(Kind.BIT, length=bits), 16, bytes([bits % 8, bits // 8]), fixed((bits + 7) // 8)) for bits in (1, 8, 13, 64)],
    *[decimal_form(*form) for form in [(1, 0), (10, 2), (9, 9), (18, 9), (19, 0), (20, 18), (38, 10), (38, 38), (39, 1), (65, 30), (65, 0), (30, 27)]],
    (ColumnType(Kind.DATE), 10, b"", st.integers(0, 9999 << 9 | 511).map(date_bytes)),
    *[(ColumnType(Kind.TIME, fsp=f), 19, bytes([f]), st.integers(-(838 << 12 | 59 << 6 | 59), 838 << 12 | 59 << 6).map(
        lambda n, f=f: ((n + (1 << 23)) << 8 * ((f + 1) // 2)).to_bytes(3 + (f + 1) // 2, "big"))) for f in range(7)],
    *[(ColumnType(Kind.TIME, fsp=f), 19, bytes([f]), fixed(3 + (f + 1) // 2)) for f in range(0, 7, 2)],
    *[(ColumnType(Kind.DATETIME, fsp=f), 18, bytes([f]), st.tuples(st.integers(0, 130_000), st.integers(0, 31), st.integers(0, 24), st.integers(0, 60), st.integers(0, 60)).map(
        lambda n, f=f: ((n[0] << 22 | n[1] << 17 | n[2] << 12 | n[3] << 6 | n[4]) + (1 << 39)).to_bytes(5, "big") + bytes([50] * ((f + 1) // 2)))) for f in range(7)],
    *[(ColumnType(Kind.TIMESTAMP, fsp=f), 17, bytes([f]), fixed(4).map(lambda n, f=f: n + bytes([39] * ((f + 1) // 2)))) for f in range(7)],
    *[(ColumnType(Kind.TIMESTAMP, fsp=f), 17, bytes([f]), fixed(4 + (f + 1) // 2)) for f in (1, 6)],
    (ColumnType(Kind.TIME), 11, b"", st.integers(-8385959, 8385959).map(lambda n: n.to_bytes(3, "little", signed=True))),
    *[(ColumnType(Kind.TIME, fsp=f), 11, b"", fixed((3, 4, 4, 5, 5, 5, 6)[f])) for f in range(7)],
    (ColumnType(Kind.DATETIME), 12, b"", st.integers(0, 99991231235959).map(lambda n: n.to_bytes(8, "little"))),
    *[(ColumnType(Kind.DATETIME, fsp=f), 12, b"", fixed((8, 6, 6, 7, 7, 7, 8)[f])) for f in range(7)],
    *[(ColumnType(Kind.DATETIME, fsp=f), 12, b"", st.integers(0, 9_999 * 13 * 32 * 86_400 * 10**f).map(
        lambda n, f=f: n.to_bytes((8, 6, 6, 7, 7, 7, 8)[f], "big"))) for f in range(1, 7)],
    *[(ColumnType(Kind.TIMESTAMP, fsp=f), 7, b"", fixed(4 + (0, 1, 1, 2, 2, 3, 3)[f])) for f in range(7)],
    (ColumnType(Kind.ENUM, charset="utf8mb4", labels=("a", "ö", "")), 254, b"\xf7\1", st.integers(0, 4).map(lambda n: bytes([n]))),
    (ColumnType(Kind.SET, charset="utf8mb4", labels=("a", "ö", "z")), 254, b"\xf8\1", st.integers(0, 8).map(lambda n: bytes([n]))),
    (ColumnType(Kind.SET, charset="utf8mb4", labels=tuple(map(str, range(64)))), 254, b"\xf8\x08", fixed(8)),
    *[(ColumnType(Kind.VARCHAR, length=60, charset=charset), 15, b"\x3c\0", sized(1, ANY)) for charset in
        ("utf8mb4", "latin1", "ascii", "cp1250", "swe7", "koi8r", "greek", "hebrew", "gbk", "sjis", "utf16", "ucs2", "tis620", "cp1256")],
    (ColumnType(Kind.VARCHAR, length=300, charset="utf8mb4"), 15, b"\xb0\4", sized(2, ANY)),
    (ColumnType(Kind.BINARY, length=5), 254, b"\xfe\5", sized(1, st.binary(max_size=6))),
    (ColumnType(Kind.LONGBLOB), 252, b"\4", sized(4, ANY)),
    (ColumnType(Kind.TEXT, charset="latin1"), 252, b"\2", sized(2, ANY)),
    (ColumnType(Kind.UUID), 254, b"\xfe\x10", sized(1, st.binary(max_size=17))),
    (ColumnType(Kind.INET6), 254, b"\xfe\x10", sized(1, st.lists(st.sampled_from([b"\0\0", b"\0\0", b"\0\1", b"\xff\xff", b"\1\0", b"\0\x1a"]), max_size=8).map(b"".join))),
    (ColumnType(Kind.INET4), 254, b"\xfe\4", sized(1, st.binary(max_size=4))),
    (ColumnType(Kind.VARCHAR, length=60, charset="utf8mb4"), 141, b"\x3c\0", sized(1, ANY.map(lambda data: b"\0" + data))),
]  # fmt: skip


@st.composite
def logs(draw) -> tuple[bytes, Table]:
    forms = draw(st.lists(st.sampled_from(FORMS), min_size=1, max_size=10))
    bitmap = (len(forms) + 7) // 8

    def image() -> bytes:
        nulls = draw(st.one_of(st.just(0), st.integers(0, 2 ** len(forms) - 1)))
        values = [draw(value) for place, (*_, value) in enumerate(forms) if not nulls >> place & 1]
        return nulls.to_bytes(bitmap, "little") + b"".join(values)

    events = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from([30, 31, 32]))
        images = b"".join(image() for _ in range(draw(st.integers(0, 4)) * (2 if kind == 31 else 1)))
        events.append((kind, images[: draw(st.one_of(st.just(len(images)), st.integers(0, len(images))))]))
    return log_of([form[:3] for form in forms], events)


@settings(max_examples=examples(120))
@given(logs())
def test_any_values_of_any_types_give_the_same_rows_or_the_same_error(log):
    raw, table = log
    assert difference(raw, format=PLAIN, log_file="b.000001", change_no=0, structures={NAME: table}) is None


@pytest.mark.parametrize("place", range(len(FORMS)))
@settings(max_examples=examples(8))
@given(st.data())
def test_every_type_alone(place, data):
    kind, wire, metadata, values = FORMS[place]
    images = b"\0" + data.draw(values) + b"\1" + b"\0" + data.draw(values)
    raw, table = log_of([(kind, wire, metadata)], [(30, images), (31, images[: len(images) // 3] * 2), (32, images)])
    assert difference(raw, format=PLAIN, log_file="b.000001", change_no=0, structures={NAME: table}) is None


def bitmaps(draw, count: int, number: int) -> list[int]:
    """Returns bitmaps of columns: one for each of `number` images. At least one image has a column."""
    few = st.sampled_from([1, 1 << count - 1, (1 << count) - 1])
    held = [draw(st.one_of(few, st.integers(0, (1 << count) - 1))) for _ in range(number)]
    return held if any(held) else [1, *held[1:]]


@st.composite
def unusual_logs(draw) -> tuple[bytes, Table]:
    """Returns events of one table whose images lack columns, or that are compressed, or both, among usual events.

    Unused bits of a bitmap have any value. Some events are damaged.
    """
    forms = draw(st.lists(st.sampled_from(FORMS), min_size=1, max_size=12))
    count = len(forms)
    size = (count + 7) // 8
    kinds = draw(st.lists(st.tuples(st.sampled_from([0, 1, 2]), st.booleans()), min_size=1, max_size=3))
    known = [(op, packs, bitmaps(draw, count, 2 if op == 1 else 1)) for op, packs in kinds]

    def image(held: int) -> bytes:
        places = [place for place in range(count) if held >> place & 1]
        nulls = draw(st.one_of(st.just(0), st.integers(0, 2 ** len(places) - 1)))
        values = [draw(forms[place][3]) for bit, place in enumerate(places) if not nulls >> bit & 1]
        return nulls.to_bytes((len(places) + 7) // 8, "little") + b"".join(values)

    raw, table = log_of([form[:3] for form in forms], [])
    head, behind, at = raw[: -(19 + 8)], raw[-(19 + 8) :], 4 + len(raw) - (19 + 8)
    for _ in range(draw(st.integers(1, 8))):
        op, packs, held = draw(st.sampled_from(known))
        images = b"".join(image(bits) for _ in range(draw(st.integers(0, 3))) for bits in held)
        if packs:
            length = draw(st.sampled_from([len(images)] * 8 + [len(images) + 1, max(len(images) - 1, 0)]))
            packed_images = zlib.compress(images, draw(st.sampled_from([0, 1, 6, 9])))
            images = b"\x82" + length.to_bytes(2, "big") + packed_images
        images = images[: draw(st.sampled_from([len(images)] * 8 + [len(images) // 2]))]
        is_v2 = draw(st.booleans())
        kind = op + {(0, 0): 23, (0, 1): 30, (1, 0): 166, (1, 1): 169}[packs, is_v2]
        spare = draw(st.sampled_from([0, 0xFF])) << count & (1 << 8 * size) - 1
        held_bytes = b"".join((bits | spare).to_bytes(size, "little") for bits in held)
        body = b"\x07" + bytes(7) + (b"\2\0" if is_v2 else b"") + packed(count) + held_bytes + images
        at += 19 + len(body)
        head += struct.pack("<IBIIIH", 1, kind, 1, 19 + len(body), at, 0) + body
    return head + behind[:13] + struct.pack("<I", at + len(behind)) + behind[17:], table


@settings(max_examples=examples(200))
@given(unusual_logs())
def test_images_that_lack_columns_and_compressed_events_give_the_same_rows(log):
    raw, table = log
    assert difference(raw, format=PLAIN, log_file="b.000001", change_no=0, structures={NAME: table}) is None


def test_column_presences_and_compressed_events_that_are_known_need_no_plain_code(monkeypatch):
    """Plain code reads only the first event with each presence of columns."""
    raw, table = log_of([FORMS[0][:3]] * 9, [])
    at, pieces = 4 + len(raw) - (19 + 8), [raw[: -(19 + 8)]]
    for number in range(60):
        held = [b"\1\0", b"\3\0", b"\2\0"][number % 3]
        image = b"\0" + bytes(held[0].bit_count())
        images = b"\x81" + bytes([len(image)]) + zlib.compress(image) if number % 2 else image
        body = b"\x07" + bytes(7) + packed(9) + held + images
        at += 19 + len(body)
        pieces.append(struct.pack("<IBIIIH", 1, 166 if number % 2 else 23, 1, 19 + len(body), at, 0) + body)
    read = []
    feed = routed.RoutedDecoder._feed
    monkeypatch.setattr(routed.RoutedDecoder, "_feed", lambda *args: (read.append(args[1].type), feed(*args))[1])
    found = decoded(
        "compiled", b"".join(pieces), format=PLAIN, log_file="b.000001", change_no=0, structures={NAME: table}
    )
    assert sum(map(len, found)) == 60
    assert sorted(read) == [19, 23, 23, 166]


def zlib_streams(chance: random.Random) -> Iterator[tuple[bytes, bytes]]:
    """Returns contents and their streams, made with all settings of zlib."""
    for size in [0, 1, 2, 9, 100, 300, 1000, 5000, 70_000] * 6:
        content = chance.choice(
            [
                chance.randbytes,
                lambda n: bytes(chance.choices(b"abcd", k=n)),
                lambda n: (chance.randbytes(7) * (n // 7 + 1))[:n],
                bytes,
                lambda n: b"".join(str(chance.random()).encode() for _ in range(n // 10))[:n],
            ]
        )(size)
        how = chance.randrange(10), zlib.DEFLATED, chance.randrange(9, 16), chance.randrange(1, 10), chance.randrange(5)
        made = zlib.compressobj(*how)
        half = len(content) // 2
        begin = made.compress(content[:half]) + (made.flush(zlib.Z_FULL_FLUSH) if chance.random() < 0.3 else b"")
        yield content, begin + made.compress(content[half:]) + made.flush()


@jit.jit
def compiled_call(uncompress, begin, end, target, size, done):
    return inflate.inflate(uncompress, begin, end, target, size, done)


def inflated(stream: bytes, size: int, uncompress: int = inflate.UNCOMPRESS) -> bytes | None:
    """Returns what compiled code makes of a stream; it must not write after `size` bytes."""
    target, done = np.full(size + 64, 0xA5, np.uint8), np.zeros(1, np.int64)
    begin = jit.address(stream)
    is_valid = compiled_call(uncompress, begin, begin + len(stream), jit.address(target), size, jit.address(done))
    assert (target[size:] == 0xA5).all()
    return target[:size].tobytes() if is_valid else None


def test_streams_of_zlib_are_decompressed():
    chance = random.Random(5)
    for content, stream in zlib_streams(chance):
        # Python's own code reads empty streams.
        assert inflated(stream, len(content)) == (content or None)
        assert inflated(stream + b"more", len(content)) == (content or None)
        assert inflated(stream, len(content) + 1) is None
        assert not content or inflated(stream, len(content) - 1) is None


def test_streams_are_left_to_python_if_its_zlib_cannot_be_called():
    assert inflated(zlib.compress(b"content"), 7, uncompress=0) is None


def test_damaged_streams_are_left_to_zlib_or_give_the_same():
    chance = random.Random(6)
    for content, stream in zlib_streams(chance):
        for _ in range(60):
            damaged = bytearray(stream)
            for _ in range(chance.choice([1, 1, 2])):
                damaged[chance.randrange(min(len(damaged), 300))] = chance.randrange(256)
            damaged = damaged[: chance.choice([len(damaged)] * 3 + [chance.randrange(len(damaged))])]
            found = inflated(bytes(damaged), len(content))
            if found is not None:
                assert zlib.decompressobj().decompress(damaged, len(content) + 1) == found


JSON_TABLE = Table(NAME, (Column("j", ColumnType(Kind.JSON)),))


def json_of(document: bytes) -> str | DecodeError:
    """Returns the text that compiled code makes of a document."""
    raw, _ = log_of([(ColumnType(Kind.JSON), 245, b"\4")], [(30, b"\0" + struct.pack("<I", len(document)) + document)])
    how = {"format": PLAIN, "log_file": "b.000001", "change_no": 0, "structures": {NAME: JSON_TABLE}}
    assert difference(raw, **how) is None
    found = decoded("compiled", raw, **how)
    return found if isinstance(found, DecodeError) else found[0].rows["after"].field(0)[0].as_py()


def scalar(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + body


def length(size: int) -> bytes:
    return bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])


SCALARS = st.one_of(
    st.floats().map(lambda value: scalar(11, struct.pack("<d", value))),
    st.tuples(st.integers(-(10**9), 10**9), st.integers(-40, 20)).map(lambda n: scalar(11, struct.pack("<d", n[0] * 10.0 ** n[1]))),
    st.text(max_size=60).map(lambda text: scalar(12, length(len(text.encode())) + text.encode())),
    st.tuples(st.sampled_from([5, 6, 7, 8, 9, 10]), fixed(8)).map(lambda n: scalar(n[0], n[1])),
    st.tuples(st.sampled_from([7, 10, 11, 12, 13]), fixed(8)).map(lambda n: scalar(15, bytes([n[0], 8]) + n[1])),
    st.sampled_from([(1, 0), (5, 5), (10, 2), (65, 30), (18, 0), (30, 27), (0, 0), (66, 1), (3, 4)]).flatmap(
        lambda form: fixed(30).map(lambda raw: scalar(15, b"\xf6\x20" + bytes(form) + raw))),
    st.sampled_from([(1, 0), (5, 5), (10, 2), (65, 30), (18, 0), (30, 27), (9, 0), (2, 1)]).flatmap(
        lambda form: decimal_form(*form)[3].map(lambda raw: scalar(15, b"\xf6" + length(len(raw) + 2) + bytes(form) + raw))),
    st.tuples(st.integers(0, 255), st.binary(max_size=200)).map(lambda n: scalar(15, bytes([n[0]]) + length(len(n[1])) + n[1])),
    st.integers(0, 3).map(lambda value: scalar(4, bytes([value]))),
)  # fmt: skip


def container(parts: list[bytes], keys: list[bytes] | None, large: bool) -> bytes:
    width, inline = (4, {4, 5, 6, 7, 8}) if large else (2, {4, 5, 6})
    head = 2 * width + (len(keys) * (width + 2) if keys is not None else 0) + len(parts) * (width + 1)
    names, entries, tail, at = b"", b"", b"", head
    for key in keys or []:
        names += at.to_bytes(width, "little") + struct.pack("<H", len(key))
        tail += key
        at += len(key)
    for part in parts:
        if part[0] in inline:
            entries += part[:1] + part[1:].ljust(width, b"\0")[:width]
        else:
            entries += part[:1] + at.to_bytes(width, "little")
            tail += part[1:]
            at += len(part) - 1
    body = len(parts).to_bytes(width, "little") + at.to_bytes(width, "little") + names + entries + tail
    return bytes([(0 if keys is not None else 2) + large]) + body


def containers(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    names = st.text(max_size=5).map(str.encode)
    return st.one_of(
        st.tuples(st.lists(inner, max_size=4), st.booleans()).map(lambda n: container(n[0], None, n[1])),
        st.tuples(st.lists(st.tuples(names, inner), max_size=4), st.booleans()).map(
            lambda n: container([part for _, part in n[0]], [key for key, _ in n[0]], n[1])
        ),
    )


DOCUMENTS = st.recursive(SCALARS, containers, max_leaves=12)


@settings(max_examples=examples(120))
@given(DOCUMENTS)
def test_json_becomes_the_same_text(document):
    json_of(document)


@settings(max_examples=examples(80))
@given(DOCUMENTS, st.data())
def test_damaged_json_becomes_the_same_text_or_error(document, data):
    broken = bytearray(document)
    for _ in range(data.draw(st.integers(1, 3))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    json_of(bytes(broken)[: data.draw(st.integers(0, len(broken)))])


@pytest.mark.parametrize("depth", [99, 100, 101])
def test_json_may_be_nested_as_deep_as_the_server_lets_it(depth):
    document = container([], None, False)
    for _ in range(depth - 1):
        document = container([document], None, True)
    found = json_of(document)
    assert found == "[" * depth + "]" * depth if depth <= 100 else isinstance(found, DecodeError)


@pytest.mark.parametrize(
    "value", [0.1, 2.5, 1e15, 1e16, 1e300, 5e-324, 0.1 + 0.2, -0.0, 1e-15, 123456789012345.6, float("inf")]
)
def test_doubles_inside_json(value):
    assert json_of(scalar(11, struct.pack("<d", value))) == json.double_text(value)


def test_a_row_with_many_doubles_of_many_digits():
    parts = [scalar(11, struct.pack("<d", number / 7)) for number in range(1, 50)]
    assert json_of(container(parts, None, True)) == "[" + ", ".join(json.double_text(n / 7) for n in range(1, 50)) + "]"


@cache
def single_bytes() -> list[str]:
    return [
        charset
        for charset in (*charsets._CODECS, *charsets._PATCHED, *charsets._UPPER_HALVES)
        if charsets.width(charset) == 1
    ]


@pytest.mark.parametrize("charset", single_bytes())
def test_every_byte_of_every_charset_of_single_bytes(charset):
    kind = ColumnType(Kind.VARCHAR, length=255, charset=charset)
    how = {"format": PLAIN, "log_file": "b.000001", "change_no": 0}
    left = [range(256)]
    while left:
        some = left.pop()
        raw, table = log_of([(kind, 15, b"\xff\0")], [(30, bytes([0, 1, byte])) for byte in some])
        if len(some) > 1 and isinstance(decoded("python", raw, **how, structures={NAME: table}), Halted):
            # An error ends a log. So each byte that is not a character gets a log of its own.
            middle = len(some) // 2
            left += [some[:middle], some[middle:]]
        else:
            assert difference(raw, **how, structures={NAME: table}) is None


def test_charsets_whose_ascii_is_not_ascii_are_known():
    assert not has_ascii("swe7")
    assert not has_ascii("utf16")
    assert has_ascii("latin1")
    assert has_ascii("gbk")


def test_commands_do_not_load_the_compiler():
    program = "import sys, pidts.cli.app, pidts.binlog; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_decimal_that_no_server_has_is_refused_where_the_log_shows_it():
    raw, _ = log_of([(ColumnType(Kind.DECIMAL), 246, bytes([255, 3]))], [])
    how = {"format": PLAIN, "log_file": "b.000001", "change_no": 0}
    for kernel in ("compiled", "python"):
        found = decoded(kernel, raw, structures=lambda logged: logged.to_table(placeholders=True), **how)
        assert isinstance(found, DecodeError)
        assert found.code == "bad-decimal"


def test_threads_that_declare_functions_at_once_keep_them_in_the_same_folder() -> None:
    """If a function's code were stored elsewhere, each process would compile it again, for many seconds."""
    paths: list[str] = []

    def declare() -> None:
        paths.extend(jit.jit(same)._cache.cache_path for _ in range(200))

    def same(number: int) -> int:
        return number

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=declare) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert len(paths) == 800
    assert {path for path in paths if not path.startswith(str(cache_folder()))} == set()


def test_a_process_knows_that_it_compiles() -> None:
    seen: list[bool] = []

    def probed() -> int:
        raise AssertionError

    @extending.overload(probed)
    def _probed() -> object:
        seen.append(jit.is_compiling())  # Numba calls this while it compiles the caller
        return lambda: 7

    assert not jit.is_compiling()
    assert numba.njit(lambda number: probed() + number)(0) == 7
    assert set(seen) == {True}
    assert not jit.is_compiling()
    with pytest.raises(numba.TypingError):
        numba.njit(lambda number: number.missing)(1)
    assert not jit.is_compiling()
