"""Computes the value that a server stores for a default that a statement writes as a literal.

Servers accept many literals for one value: `70`, `'70'` and `1970` are one YEAR, `b'1100001'` and `x'61'` are the text
`a`. Another server may read a literal differently, so a structure contains the value in the form that catalogs show. If
MySQL 5.6, MySQL 9.7 and MariaDB 10.11 may read a literal differently, this module treats its value as unknown. Examples
are `DEFAULT 1` of an enum with a label `1`, and digits of a second that some servers round and others cut off.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal, InvalidOperation

from pidts.model.types import ColumnType, Kind
from pidts.schema.defaults import literal
from pidts.schema.dialect import is_utc
from pidts.schema.labels import WIDTHS, text_of
from pidts.schema.literals import BytesLiteral, CurrentTime, Expression, Number, TextLiteral, parse_default

_INTRODUCED = re.compile(r"_(\w+)\s*'")
"""A text literal that begins with the name of its charset: `_latin1'x'`."""
_DAY = re.compile(r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})")
_DAY_DIGITS = re.compile(r"(\d{4})(\d\d)(\d\d)(?:(\d\d\d\d\d\d(?:\.\d*)?)|(?:\.0*)?)")
_CLOCK = re.compile(r"(\d{1,3}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{0,6}))?)?")
_CLOCK_DIGITS = re.compile(r"(\d{2})(\d\d)(\d\d)(?:\.(\d{0,6}))?")
_OFFSET = re.compile(r"([+-])(\d{1,2}):(\d\d)")
_TIME_DIGITS = re.compile(r"(-?)(\d{1,7})(?:\.(\d{0,6}))?")
_DIGITS = Context(prec=80)
"""More digits than any DECIMAL has."""
_LONGEST_NUMBER = 8
_MOST_PLAIN_DIGITS = 15
"""Servers write a number with an exponent if it has more digits than this before the point, or too many zeros after the
point (`_LEAST_PLAIN`).
"""
_LEAST_PLAIN = -5
_SAME_JSON = ("{}", "[]")


def stored_default(default: str | None, kind: ColumnType) -> str | None:
    """Returns the default in the form that a catalog shows; None if the stored value is not known.

    A missing default, the current time and an expression are returned unchanged. The default of a TIMESTAMP column
    stays in the time zone in which the statement writes it.
    """
    parsed = parse_default(default)
    if default is None or parsed is None or isinstance(parsed, CurrentTime | Expression):
        return default
    if (named := _INTRODUCED.match(default)) and (named[1].lower() in WIDTHS or not default.isascii()):
        return None
    try:
        return _stored(parsed, kind)
    except (InvalidOperation, OverflowError, ValueError):
        return None


def in_utc(default: str | None, kind: ColumnType, zone: str) -> str | None:
    """Returns the default of a TIMESTAMP column in UTC; `zone` is the time zone of the session that has declared it.

    The function does not know the offset of a named zone: with such a zone, the default becomes an expression.
    """
    parsed = parse_default(default)
    if default is None or parsed is None or isinstance(parsed, CurrentTime | Expression) or is_utc(zone):
        return default
    stored = stored_default(default, kind)
    if stored is not None and not stored.strip("'0-: ."):
        return default
    moment = _shifted(stored, zone) if stored is not None else None
    return f"'{moment}'" if moment is not None else f"(convert_tz({default}, {literal(zone)}, '+00:00'))"


def as_bytes(default: str | None) -> str | None:
    """Returns the default of a binary column, a literal in UTF-8, as a literal with the same bytes in any session.

    The original literal has other bytes in some sessions: for `'é'`, a latin1 session stores the single byte E9.
    """
    parsed = parse_default(default)
    if default is None or default.isascii() or not isinstance(parsed, TextLiteral) or _INTRODUCED.match(default):
        return default
    return f"x'{parsed.value.encode().hex().upper()}'"


def has_bytes_of_session(default: str | None, kind: ColumnType) -> bool:
    """Whether the value of a default depends on the charset of the session that declares it."""
    if default is None or default.isascii() or not isinstance(parse_default(default), TextLiteral):
        return False
    return kind.is_bytes or bool(_INTRODUCED.match(default))


def _shifted(stored: str, zone: str) -> str | None:
    offset = _OFFSET.fullmatch(zone)
    if offset is None:
        return None
    ahead = timedelta(hours=int(offset[2]), minutes=int(offset[3])) * (1 if offset[1] == "+" else -1)
    whole, point, fraction = stored.strip("'").partition(".")
    try:
        return f"{datetime.fromisoformat(whole) - ahead}{point}{fraction}"
    except (ValueError, OverflowError):  # a date that does not exist
        return None


def _stored(value: TextLiteral | BytesLiteral | Number, kind: ColumnType) -> str | None:
    if kind.kind is Kind.BIT:
        return _bits(value)
    if kind.is_integer:
        return str(_whole(value))
    if kind.kind is Kind.DECIMAL:
        return _quoteless(_number(value).quantize(_unit(kind.scale or 0), ROUND_HALF_UP, _DIGITS))
    if kind.kind in (Kind.FLOAT, Kind.DOUBLE):
        return _float(value, kind.scale)
    if kind.kind is Kind.YEAR:
        return _year(value)
    if kind.kind in (Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP, Kind.TIME):
        text = _plain_text(value, kind)
        moment = _time(text, kind.fsp) if kind.kind is Kind.TIME else _moment(text, kind)
        return None if moment is None else f"'{moment}'"
    if kind.is_bytes:
        return _bytes(value, kind)
    if kind.is_text:
        text = _plain_text(value, kind)
        return None if text is None else _labelled(text, value, kind) if kind.labels else _text(text, kind)
    if kind.kind is Kind.JSON and value.value not in _SAME_JSON:
        return None  # servers store JSON with different spaces, and with the names of an object in different orders
    return literal(value.value) if isinstance(value, TextLiteral) else None


def _plain_text(value: TextLiteral | BytesLiteral | Number, kind: ColumnType) -> str | None:
    """Returns the text that a server stores for the literal; None if it is not known."""
    if isinstance(value, Number):
        return _shown(value.value)
    if isinstance(value, BytesLiteral):
        return text_of(value.value, kind.charset or "ascii")
    return value.value


def _number(value: TextLiteral | BytesLiteral | Number) -> Decimal:
    if isinstance(value, BytesLiteral):
        if len(value.value) > _LONGEST_NUMBER:
            raise ValueError(value)
        return Decimal(int.from_bytes(value.value))
    return Decimal(repr(float(value.value))) if "e" in value.value.lower() else Decimal(value.value)


def _whole(value: TextLiteral | BytesLiteral | Number) -> int:
    """Returns the whole number that servers store.

    A half is rounded away from zero, but to even if the number has an exponent.
    """
    has_exponent = isinstance(value, Number) and "e" in value.value.lower()
    return int(_number(value).to_integral_value(ROUND_HALF_EVEN if has_exponent else ROUND_HALF_UP))


def _unit(scale: int) -> Decimal:
    return Decimal(1).scaleb(-scale)


def _quoteless(number: Decimal) -> str:
    return f"{number or abs(number):f}"


def _float(value: TextLiteral | BytesLiteral | Number, scale: int | None) -> str | None:
    number = _number(value)
    if scale is not None and number != number.quantize(_unit(scale), context=_DIGITS):
        return None
    return _shown(value.value) or value.value if isinstance(value, Number) else str(number)


def _shown(number: str) -> str | None:
    """Returns a number in the text form of servers; None if a server may write it with an exponent."""
    if "e" not in number.lower():
        return _quoteless(Decimal(number.rstrip(".")))
    exact = Decimal(repr(float(number)))
    if exact and not _LEAST_PLAIN <= exact.adjusted() < _MOST_PLAIN_DIGITS:
        return None
    text = _quoteless(exact)
    return text.rstrip("0").rstrip(".") if "." in text else text


def _bits(value: TextLiteral | BytesLiteral | Number) -> str:
    if isinstance(value, TextLiteral):
        value = BytesLiteral(value.value.encode("ascii"))
    return f"b'{_whole(value):b}'"


def _year(value: TextLiteral | BytesLiteral | Number) -> str:
    digits = value.value.strip() if isinstance(value, TextLiteral) else ""
    year = _whole(value)
    if year > 99 or (year == 0 and (len(digits) == 4 or not digits)):
        return f"{year:04}"
    return str(year + (2000 if year < 70 else 1900))


def _text(text: str, kind: ColumnType) -> str | None:
    kept = text.rstrip(" ") if kind.kind is Kind.CHAR else text[: kind.length]
    return literal(kept) if kind.length is None or len(text.rstrip(" ")) <= kind.length else None


def _labelled(text: str, value: TextLiteral | BytesLiteral | Number, kind: ColumnType) -> str | None:
    if isinstance(value, Number):
        return None  # some servers take the number for a label, others for a label's index
    text = text.rstrip(" ")
    if kind.kind is Kind.ENUM:
        label = _label(text, kind)
        return None if label is None else literal(label)
    given = {_label(part, kind) for part in text.split(",")} if text else set()
    return None if None in given else literal(",".join(label for label in kind.labels if label in given))


def _label(text: str, kind: ColumnType) -> str | None:
    """Returns the label that a text names, or None. Case is ignored only in ASCII, where all collations agree."""
    if text in kind.labels:
        return text
    if not text.isascii() or not (kind.collation or "").endswith("_ci"):
        return None
    return next((label for label in kind.labels if label.isascii() and label.lower() == text.lower()), None)


def _bytes(value: TextLiteral | BytesLiteral | Number, kind: ColumnType) -> str | None:
    if kind.kind in (Kind.VECTOR, Kind.GEOMETRY):
        return None
    if not isinstance(value, BytesLiteral):
        text = _plain_text(value, kind)
        if text is None or not text.isascii():
            return None  # the bytes of the text are in the session's charset
        value = BytesLiteral(text.encode())
    data = value.value.ljust(kind.length or 1, b"\0") if kind.kind is Kind.BINARY else value.value
    return f"x'{data.hex().upper()}'"


def _moment(text: str | None, kind: ColumnType) -> str | None:
    """Returns a date or datetime as catalogs show it; None for other texts, or if a server may round the fraction."""
    if text is None:
        return None
    text = text.strip()
    clock: str | None
    if not text.strip("0-: ."):
        day, clock = ["0000", "00", "00"], "00:00:00"
    elif found := _DAY_DIGITS.fullmatch(text):
        *day, rest = found.groups()
        clock = "00:00:00" if rest is None else _clock(_CLOCK_DIGITS.fullmatch(rest), kind.fsp)
    elif found := _DAY.match(text):
        day, rest = list(found.groups()), text[found.end() :]
        clock = "00:00:00"
        if rest:
            clock = _clock(_CLOCK.fullmatch(rest[1:].strip()), kind.fsp) if rest[0] in "T " else None
    else:
        return None
    date = f"{day[0]}-{day[1]:>02}-{day[2]:>02}"
    if kind.kind is Kind.DATE:
        return date if clock is not None else None
    return None if clock is None else f"{date} {_filled(clock, kind.fsp)}"


def _clock(found: re.Match[str] | None, fsp: int) -> str | None:
    if found is None:
        return None
    fraction = _fraction(found[4] or "", fsp)
    if fraction is None:
        return None
    return f"{found[1]:>02}:{found[2]:>02}:{found[3] or '00':>02}{fraction}"


def _fraction(digits: str, fsp: int) -> str | None:
    """Returns the fractional digits of a second that the column stores; None if a server may round them up."""
    if digits[fsp : fsp + 1] >= "5":
        return None
    return f".{digits[:fsp]:0<{fsp}}" if fsp else ""


def _filled(clock: str, fsp: int) -> str:
    return clock if not fsp or "." in clock else f"{clock}.{'0' * fsp}"


def _time(text: str | None, fsp: int) -> str | None:
    if text is None:
        return None
    sign = "-" if text.startswith("-") else ""
    if found := _TIME_DIGITS.fullmatch(text):
        digits = f"{found[2]:0>6}"
        fraction = _fraction(found[3] or "", fsp)
        return None if fraction is None else f"{sign}{digits[:-4]}:{digits[-4:-2]}:{digits[-2:]}{fraction}"
    clock = _clock(_CLOCK.fullmatch(text.removeprefix("-").strip()), fsp)
    return None if clock is None else sign + _filled(clock, fsp)
