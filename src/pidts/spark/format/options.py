"""Parses the options of `format("binlog")`; an unknown option is an error with advice."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pidts.excerpt.files import find_files
from pidts.excerpt.range import POINT_FORMS, Point, parse_point
from pidts.excerpt.table_options import asked_tables, server_of, tables_or_database
from pidts.model import ConfigError, TableName, Where
from pidts.model.similar_names import suggestion
from pidts.rules import AllowList
from pidts.source import SourceConfig

EARLIEST, LATEST = "earliest", "latest"

_NAMES = (
    "url",
    "password-file",
    "path",
    "relay",
    "source-id",
    "schema-from",
    "tables",
    "startingPosition",
    "endingPosition",
    "from",
    "to",
    "typed",
    "zone",
    "maxRowsPerTrigger",
    "maxBytesPerTrigger",
    "partitionBytes",
)
_KNOWN = {name.lower(): name for name in _NAMES}
_SIZE = re.compile(r"(\d+)\s*([kmg]?)b?", re.IGNORECASE | re.ASCII)
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30}


@dataclass(frozen=True, slots=True)
class BinlogOptions:
    """The options of one data frame."""

    server: SourceConfig | None
    paths: tuple[Path, ...]
    relay: Path | None
    source_id: str
    schema_from: SourceConfig | None
    """The server that has the tables' structures, in addition to the log; None if none is given."""
    allow: AllowList
    start: Point | str | None
    """A point in the log, or one of the two words `earliest` and `latest`; None if none is given."""
    end: Point | str | None
    typed: TableName | None
    """The table whose column types the columns `old` and `new` have; None if both are text."""
    zone: int
    max_rows: int | None
    max_bytes: int
    partition_bytes: int

    @classmethod
    def parse(cls, given: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> BinlogOptions:
        """Parses a user's options. If they name an environment variable for the password, its value is used."""
        options = {key.lower(): value for key, value in given.items()}
        for key in given:
            if key.lower() not in _KNOWN:
                raise _unknown(key)
        places = [name for name in ("url", "path", "relay") if options.get(name)]
        if not places or (len(places) > 1 and set(places) != {"url", "relay"}):
            what = f"both {' and '.join(places)} are given" if places else "no option says where the log is"
            todo = "Give `url` (a server), `path` (binary log files) or `relay` and `source-id` (a relay of pidts)"
            raise ConfigError("bad-option", what, todo=todo)
        if "relay" in places and "url" not in places and not options.get("source-id"):
            raise ConfigError(
                "bad-option",
                "relay needs source-id, which names one of its folders",
                todo="Give the source-id of the task file: .option('source-id', ...)",
            )
        server = _server(options, "url", environ)
        schema_from = _server(options, "schema-from", environ)
        tables = options.get("tables", "")
        return cls(
            server=server,
            paths=_paths(options.get("path", "")),
            relay=Path(options["relay"]).absolute() if options.get("relay") else None,
            source_id=server.source_id if server else options.get("source-id", ""),
            schema_from=schema_from or server,
            allow=asked_tables(tables_or_database(tables, options.get("url", "")), "tables"),
            start=_point(options, "startingPosition", "from"),
            end=_point(options, "endingPosition", "to"),
            typed=_one_table(tables) if _truth(options, "typed") else None,
            zone=_number(options, "zone", 0, 2**31 - 1) or 0,
            max_rows=_number(options, "maxRowsPerTrigger", 1, 2**62),
            max_bytes=_size(options, "maxBytesPerTrigger", 256 << 20),
            partition_bytes=_size(options, "partitionBytes", 8 << 20),
        )


def _unknown(key: str) -> ConfigError:
    todo = suggestion(key, _NAMES) or f"Known: {', '.join(_NAMES)}"
    return ConfigError("bad-option", f"format binlog has no option {key!r}", todo=todo)


def _server(options: Mapping[str, str], name: str, environ: Mapping[str, str]) -> SourceConfig | None:
    if not options.get(name):
        return None
    source_id = options.get("source-id", "") if name == "url" else ""
    password_file = options.get("password-file", "")
    return server_of(options[name], environ, source_id=source_id, password_file=password_file)


def _paths(text: str) -> tuple[Path, ...]:
    names = filter(None, map(str.strip, text.removeprefix("file:").split(",")))
    found = tuple(path.absolute() for path in find_files(names))
    for path in found:
        if not path.exists():
            raise ConfigError(
                "unreadable-file",
                "no log file has this name",
                where=Where(file=str(path)),
                todo="Check the path, which may contain the patterns * and ?",
            )
    return found


def _one_table(text: str) -> TableName:
    schema, dot, name = text.strip().partition(".")
    if not dot or re.search(r"[,*?~\[]", text):
        todo = "Give `tables` as schema.table. For several tables, make a data frame for each, or leave out `typed`"
        raise ConfigError("bad-option", f"typed needs one table, but tables is {text!r}", todo=todo)
    return TableName(schema, name)


def _point(options: Mapping[str, str], name: str, short: str) -> Point | str | None:
    both = [key for key in (name, short) if options.get(key.lower())]
    if not both:
        return None
    if len(both) > 1:
        raise ConfigError(
            "bad-option",
            f"{name} and {short} are two names of one option; only one of them can be given",
            todo="Leave one of them out",
        )
    text = options[both[0].lower()].strip()
    if text.lower() in {EARLIEST, LATEST}:
        return text.lower()
    try:
        return parse_point(text)
    except ValueError as error:
        what = f"{both[0]}: {error}"
        raise ConfigError("bad-option", what, todo=f"Write earliest, latest, {POINT_FORMS}") from None


def _truth(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "false").lower()
    if text not in {"true", "false"}:
        raise ConfigError(
            "bad-option", f"{name} is true or false, not {text!r}", todo="See docs/reference/spark-source.md"
        )
    return text == "true"


def _number(options: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
        raise ConfigError(
            "bad-option", f"{name} is a number from {least} on, not {text!r}", todo="See docs/reference/spark-source.md"
        )
    return int(text)


def _size(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name.lower())
    if text is None:
        return default
    found = _SIZE.fullmatch(text)
    if not found or not int(found[1]):
        raise ConfigError(
            "bad-option", f"{name} is a size such as 64m, not {text!r}", todo="See docs/reference/spark-source.md"
        )
    return int(found[1]) << _UNITS[found[2].lower()]
