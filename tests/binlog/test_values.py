"""For each family of types, the decoded value is equal to the written one, and impossible bytes are refused."""

# Tables of characters are full of characters that look like others.
# ruff: noqa: RUF001

from __future__ import annotations

import ipaddress
import struct
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidts.binlog import compressed
from pidts.binlog.cursor import Cursor
from pidts.binlog.gtid_events import _signed, varlen
from pidts.binlog.values import charsets, columns, decimals, identifiers, json
from pidts.binlog.wire import Wire, WireType
from pidts.model import Column, ColumnType, DecodeError, Halted, Kind, Table, TableName, calendar

T = TableName("d", "t")


def decoded(kind: ColumnType, wire: Wire, data: bytes) -> pa.Array:
    """Decodes one value, and a NULL after it, from the bytes that a log would have."""
    column = Column("c", kind)
    values: list[object] = []
    assert columns.reader(T, column, wire)(values.append)(data, 0) == len(data)
    (build,) = columns.builders(Table(T, (column,)))
    array = build([*values, None])
    array.validate(full=True)
    assert array.type == kind.arrow
    assert array[1].as_py() is None
    return array.slice(0, 1)


def written_decimal(number: int, precision: int, scale: int) -> bytes:
    """Returns a decimal in the server's form, one group of digits after the other."""
    size, groups = decimals.layout(precision, scale)
    left, pieces = abs(number), []
    for start, end, limit in reversed(groups):
        pieces.append((left % limit).to_bytes(end - start, "big"))
        left //= limit
    raw = bytearray(b"".join(reversed(pieces)))
    assert len(raw) == size
    if number < 0:
        raw = bytearray(byte ^ 0xFF for byte in raw)
    raw[0] ^= 0x80
    return bytes(raw)


@st.composite
def decimal_cases(draw):
    precision = draw(st.integers(1, 65))
    scale = draw(st.integers(0, min(precision, 30)))
    return draw(st.integers(-(10**precision) + 1, 10**precision - 1)), precision, scale


@given(decimal_cases())
def test_decimals_of_every_size(case):
    number, precision, scale = case
    kind = ColumnType(Kind.DECIMAL, precision=precision, scale=scale)
    found = decoded(kind, Wire(WireType.DECIMAL, precision, scale), written_decimal(number, precision, scale))
    exact = Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))
    assert found[0].as_py() == exact


def test_a_group_of_digits_that_is_too_large_is_no_decimal():
    with pytest.raises(DecodeError, match="ffffffffff") as caught:
        decimals.unscaled(b"\xff\xff\xff\xff\xff", decimals.layout(10, 2)[1])
    assert caught.value.code == "bad-decimal"


@given(st.integers(-(838 * 3600 + 3599) * 10**6, (838 * 3600 + 3599) * 10**6))
def test_times_with_their_fractions(microseconds):
    seconds, fraction = divmod(abs(microseconds), 10**6)
    packed = (seconds // 3600 << 12 | seconds // 60 % 60 << 6 | seconds % 60) << 24 | fraction
    raw = ((packed if microseconds >= 0 else -packed) + (1 << 47)).to_bytes(6, "big")
    found = decoded(ColumnType(Kind.TIME, fsp=6), Wire(WireType.TIME2, scale=6), raw)
    assert found.cast(pa.int64())[0].as_py() == microseconds


@given(st.integers(0, 9999), st.integers(0, 12), st.integers(0, 31), st.integers(0, 86_400 * 10**6 - 1))
def test_datetimes_real_or_not(year, month, day, microseconds):
    seconds, fraction = divmod(microseconds, 10**6)
    packed = (year * 13 + month) << 22 | day << 17 | seconds // 3600 << 12 | seconds // 60 % 60 << 6 | seconds % 60
    raw = ((packed + (1 << 39)) << 24 | fraction).to_bytes(8, "big")
    found = decoded(ColumnType(Kind.DATETIME, fsp=6), Wire(WireType.DATETIME2, scale=6), raw)
    days, time = calendar.split(found.cast(pa.int64())[0].as_py())
    assert (*calendar.fields(days), time) == (year, month, day, microseconds)
    date = decoded(ColumnType(Kind.DATE), Wire(WireType.DATE), (year << 9 | month << 5 | day).to_bytes(3, "little"))
    assert date.cast(pa.int32())[0].as_py() == days


@pytest.mark.parametrize(
    ("kind", "wire", "raw", "code", "said"),
    [
        (ColumnType(Kind.DATE), Wire(WireType.DATE), b"\xff\xff\xff", "bad-date", "year 32767"),
        (ColumnType(Kind.DATETIME), Wire(WireType.DATETIME2), b"\x80\x00\x01\xf0\x00", "bad-date", "31:0:0.000000"),
        (ColumnType(Kind.DATETIME), Wire(WireType.DATETIME2), bytes(5), "bad-date", "before the year 0"),
        (ColumnType(Kind.TIME), Wire(WireType.TIME2), b"\xff\xff\xff", "bad-time", "2047:63:63.000000"),
        (
            ColumnType(Kind.TIMESTAMP, fsp=6),
            Wire(WireType.TIMESTAMP2, scale=6),
            b"\1\1\1\1\xff\xff\xff",
            "bad-time",
            "16777215 microseconds",
        ),
        (
            ColumnType(Kind.ENUM, labels=("a",)),
            Wire(WireType.ENUM, 1),
            b"\2",
            "structure-mismatch",
            "column c .*2, but only 1",
        ),
        (
            ColumnType(Kind.SET, labels=("a",)),
            Wire(WireType.SET, 1),
            b"\2",
            "structure-mismatch",
            "column c .*2, but only 1",
        ),
        (
            ColumnType(Kind.VARCHAR, charset="utf8mb4"),
            Wire(WireType.VARCHAR_COMPRESSED, 9),
            b"\x04\x81\x05no!",
            "bad-compression",
            "header check",
        ),
        (ColumnType(Kind.JSON), Wire(WireType.JSON, 1), b"\x02\x05\x01", "bad-json", "2 bytes points outside"),
    ],
)
def test_impossible_values_are_refused(kind, wire, raw, code, said):
    with pytest.raises(DecodeError, match=said) as caught:
        decoded(kind, wire, raw)
    assert caught.value.code == code
    assert code != "structure-mismatch" or caught.value.where.table == "d.t"


def test_text_that_is_none_stops_the_task_and_names_the_column():
    for charset, raw in (
        ("utf8mb4", b"\x02\xc3("),
        ("ascii", b"\x01\xe4"),
        ("gbk", b"\x01\x81"),
        ("ucs2", b"\x02\xd8\x00"),
    ):
        with pytest.raises(Halted, match="column c ") as caught:
            decoded(ColumnType(Kind.VARCHAR, length=5, charset=charset), Wire(WireType.VARCHAR, 20), raw)
        assert (caught.value.code, caught.value.where.table) == ("undecodable-text", "d.t")


@pytest.mark.parametrize(
    ("kind", "wire"),
    [
        (ColumnType(Kind.INT), Wire(WireType.LONGLONG)),
        (ColumnType(Kind.DECIMAL, precision=10, scale=2), Wire(WireType.DECIMAL, 10, 3)),
        (ColumnType(Kind.DATETIME, fsp=3), Wire(WireType.DATETIME2, scale=2)),
        (ColumnType(Kind.TEXT, charset="utf8mb4"), Wire(WireType.BLOB, 4)),
        (ColumnType(Kind.VARCHAR, length=5, charset="latin1"), Wire(WireType.STRING, 5)),
        (ColumnType(Kind.ENUM, labels=tuple(map(str, range(300)))), Wire(WireType.ENUM, 1)),
        (ColumnType(Kind.BIT, length=9), Wire(WireType.BIT, 8)),
        (ColumnType(Kind.UUID), Wire(WireType.STRING, 4)),
        (ColumnType(Kind.JSON), Wire(WireType.GEOMETRY, 4)),
    ],
)
def test_a_form_that_the_type_cannot_have_is_refused(kind, wire):
    with pytest.raises(DecodeError) as caught:
        columns.reader(T, Column("c", kind), wire)
    assert caught.value.code == "structure-mismatch"


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (-2.5, "-2.5"),
        (1e14, "100000000000000.0"),
        (123456789012345.0, "123456789012345.0"),
        (1e15, "1e15"),
        (1234567890123456.0, "1.234567890123456e15"),
        (1e300, "1e300"),
        (-1.5e-300, "-1.5e-300"),
        (0.1, "0.1"),
        (1e-15, "0.000000000000001"),
        (1e-16, "1e-16"),
        (5e-324, "5e-324"),
    ],
)
def test_doubles_in_json(number, expected):
    assert json.double_text(number) == expected
    assert float(json.double_text(number)) == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_in_json_lose_nothing(number):
    assert float(json.double_text(number)) == number


def test_containers_that_share_their_parts_do_not_take_for_ever():
    """Both members of each array are the next array: 22 levels in 222 bytes, and two to the power of 22 values."""
    level = struct.pack("<HHBHBH", 2, 10, 2, 10, 2, 10)
    last = struct.pack("<HHBHBH", 2, 10, 4, 0, 4, 1)
    with pytest.raises(DecodeError, match="nested too deeply") as caught:
        json.text(b"\2" + 21 * level + last)
    assert caught.value.code == "bad-json"
    assert json.text(b"\2" + 2 * level + last) == "[[[null, true], [null, true]], [[null, true], [null, true]]]"


def test_a_document_is_as_deep_as_the_server_allows():
    inside = struct.pack("<HHBH", 1, 7, 4, 0)
    deepest = b"\2" + 98 * struct.pack("<HHBH", 1, 7, 2, 7) + inside
    assert json.text(deepest) == 99 * "[" + "null" + 99 * "]"
    with pytest.raises(DecodeError, match="nested too deeply") as caught:
        json.text(b"\2" + struct.pack("<HHBH", 1, 7, 2, 7) + deepest[1:])
    assert caught.value.code == "bad-json"


@pytest.mark.parametrize("charset", ["utf8mb4", "utf8mb3", "utf16", "utf16le", "utf32"])
@given(st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs", "Co", "Cn"])))
def test_unicode_in_every_form(charset, plain):
    forms = {"utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be"}
    assert charsets.decoder(charset)(plain.encode(forms.get(charset, "utf-8"))) == plain


@pytest.mark.parametrize(
    ("charset", "raw", "expected"),
    [
        ("latin1", b"\x80\x81\xe4", "€\x81ä"),
        ("swe7", b"[\\]", "ÄÖÅ"),
        ("koi8u", b"\x95\xa4", "•є"),
        ("greek", b"\xa1\xe1", "ʽα"),
        ("sjis", b"\x81\x5f\xb1", "\\ｱ"),
        ("euckr", b"\x81\x41", "갂"),
        ("keybcs2", b"\x80", "Č"),
        ("gb18030", b"\xd6\xd0\xa8\xbc\x81\x30\x81\x30", "中ḿ\x80"),
    ],
)
def test_where_python_and_the_servers_differ_the_servers_are_right(charset, raw, expected):
    assert charsets.decoder(charset)(raw) == expected


@pytest.mark.parametrize(
    ("charset", "raw"), [("greek", b"\xa4"), ("swe7", b"\xe4"), ("dec8", b"\xff"), ("cp1250", b"\x81")]
)
def test_holes_in_code_pages_stay_holes(charset, raw):
    with pytest.raises(UnicodeDecodeError):
        charsets.decoder(charset)(raw)


def test_an_unknown_charset():
    with pytest.raises(Halted) as caught:
        charsets.decoder("klingon")
    assert caught.value.code == "unknown-charset"


@pytest.mark.parametrize(
    ("collation", "charset"),
    [
        (0, None),
        (8, "latin1"),
        (33, "utf8mb3"),
        (63, "binary"),
        (255, "utf8mb4"),
        (1069, "utf8mb4"),
        (2304, "utf8mb4"),
        (9999, None),
    ],
)
def test_collation_ids(collation, charset):
    assert charsets.charset_of(collation) == charset


@given(st.binary(min_size=16, max_size=16))
def test_ipv6_addresses_stay_the_same_address(raw):
    assert ipaddress.IPv6Address(identifiers.inet6_text(raw)).packed == raw


@given(st.integers(0, 2**64 - 1))
def test_numbers_of_variable_length(number):
    bits = max(number.bit_length(), 1)
    size = 9 if bits > 56 else (bits + 6) // 7
    encoded = (
        (b"\xff" + number.to_bytes(8, "little"))
        if size == 9
        else (number << size | (1 << size - 1) - 1).to_bytes(size, "little")
    )
    cursor = Cursor(encoded + b"tail", "a test")
    assert varlen(cursor) == number
    assert cursor.rest() == b"tail"


@given(st.integers(-(2**63), 2**63 - 1))
def test_signed_numbers_of_variable_length(number):
    assert _signed(number << 1 if number >= 0 else ~number << 1 | 1) == number


@given(st.binary())
def test_values_that_are_not_compressed_are_refused(raw):
    with pytest.raises(DecodeError, match="a test") as caught:
        compressed.inflate(b"\x82\xff\xff" + raw, "a test")
    assert caught.value.code in {"bad-compression", "bad-size"}
