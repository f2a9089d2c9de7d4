"""The rules by which a server reads a statement: the server's kind and version, and the modes of the session."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from pidts.model.records.target_records import LoggedStatement
from pidts.schema.charsets import default_collation

_REAL_AS_FLOAT = 1 << 0
_ANSI_QUOTES = 1 << 2
_IGNORE_SPACE = 1 << 3
_ORACLE = 1 << 9
_MAXDB = 1 << 12
_NO_BACKSLASH_ESCAPES = 1 << 20

_OTHER_VALUES = 1 << 1 | 1 << 6 | 1 << 29 | 1 << 31
"""The bits of PIPES_AS_CONCAT, NO_UNSIGNED_SUBTRACTION, HIGH_NOT_PRECEDENCE and PAD_CHAR_TO_FULL_LENGTH."""
_STRICT = 1 << 21 | 1 << 22
_ALLOW_INVALID_DATES = 1 << 25
_MYSQL_CUTS, _MARIADB_ROUNDS = 1 << 32, 1 << 34
"""The bits of TIME_TRUNCATE_FRACTIONAL and of TIME_ROUND_FRACTIONAL."""

_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Dialect:
    """The properties of the server and of the session that decide what the text of a statement means."""

    mariadb: bool = False
    version: tuple[int, int, int] = (8, 4, 0)
    explicit_timestamp: bool = True
    """The variable `explicit_defaults_for_timestamp`. If it is off, a TIMESTAMP without attributes is NOT NULL."""
    ansi_quotes: bool = False
    no_backslash_escapes: bool = False
    ignore_space: bool = False
    """Whether `COUNT (1)` is a call of the built-in function, and not of a stored function."""
    real_as_float: bool = False
    other_types: bool = False
    """Whether the mode is ORACLE or MAXDB, under which DATE or TIMESTAMP mean other types."""
    other_values: bool = False
    """Whether the SQL modes include a mode that gives some expressions another meaning."""
    other_fractions: bool = False
    """Whether the SQL mode reverses what the server does with further digits of a second.

    Without such a mode, MySQL rounds, and MariaDB cuts the digits off.
    """
    zeroes_unreal_days: bool = False
    """Whether an ALTER of the session may store the zero date in place of a day such as February 31: the session is not
    strict. With ALLOW_INVALID_DATES, MySQL keeps such a day, and MariaDB keeps it only if it is not a text.
    """
    time_zone: str = "+00:00"
    """The time zone of times in a statement's text; `SYSTEM`: the server's own time zone, which is not UTC."""
    utf8_literals: bool = False
    """Whether the session's literals are in UTF-8: a binary column stores the bytes of a literal as they were sent."""
    lower_case_names: bool = False
    """Whether `lower_case_table_names` is 1: then names of databases and tables are stored in lower case."""
    charset: str = "utf8mb4"
    collation: str | None = None
    """The server's default collation, for databases that are not known; None: the default collation of `charset`."""

    @classmethod
    def of(cls, server_version: str) -> Dialect:
        """Returns the dialect of a version as the log and `SELECT version()` write it: `10.11.6-MariaDB-log`."""
        mariadb = "mariadb" in server_version.lower()
        text = server_version.removeprefix("5.5.5-") if mariadb else server_version
        found = _VERSION.match(text)
        if found is None:
            return cls(mariadb=mariadb)
        major, minor, patch = map(int, found.groups())
        explicit = (major, minor) >= ((10, 10) if mariadb else (8, 0))
        return cls(mariadb=mariadb, version=(major, minor, patch), explicit_timestamp=explicit)

    def under(self, sql_mode: int | None, time_zone: str = "", *, utf8_literals: bool = False) -> Dialect:
        """Returns the dialect of this server in the session of a QUERY event, whose settings are the arguments.

        `sql_mode` None or an empty `time_zone` keeps this dialect's values. `SYSTEM` is the server's own time zone.
        """
        zone = self.time_zone if time_zone in ("", "SYSTEM") else time_zone
        if sql_mode is None:
            return replace(self, time_zone=zone, utf8_literals=utf8_literals)
        return replace(
            self,
            time_zone=zone,
            utf8_literals=utf8_literals,
            ansi_quotes=bool(sql_mode & _ANSI_QUOTES),
            no_backslash_escapes=bool(sql_mode & _NO_BACKSLASH_ESCAPES),
            ignore_space=bool(sql_mode & _IGNORE_SPACE),
            real_as_float=bool(sql_mode & _REAL_AS_FLOAT),
            other_types=bool(sql_mode & (_ORACLE | _MAXDB)),
            other_values=bool(sql_mode & _OTHER_VALUES),
            zeroes_unreal_days=not sql_mode & (_STRICT if self.mariadb else _STRICT | _ALLOW_INVALID_DATES),
            other_fractions=bool(sql_mode & (_MARIADB_ROUNDS if self.mariadb else _MYSQL_CUTS)),
        )

    def of_session(self, logged: LoggedStatement) -> Dialect:
        """Returns the dialect of this server in the session in which the statement ran."""
        return self.under(logged.sql_mode, logged.time_zone, utf8_literals=logged.utf8_literals)

    def collation_of(self, charset: str) -> str:
        """Returns the collation that this server uses if a statement names only the charset."""
        return default_collation(charset, mariadb=self.mariadb, version=self.version)

    def runs_comment(self, version: int, *, mariadb_only: bool) -> bool:
        """Whether the text inside `/*!version ... */` or `/*M!version ... */` is part of the statement."""
        if mariadb_only and not self.mariadb:
            return False
        if self.mariadb and not mariadb_only and 50700 <= version <= 99999:
            return False  # MariaDB skips these comments, which are for MySQL 5.7 and later
        major, minor, patch = self.version
        return version <= major * 10000 + minor * 100 + patch

    @property
    def is_in_utc(self) -> bool:
        """Whether a statement's times are in UTC."""
        return is_utc(self.time_zone)

    @property
    def cuts_fractions(self) -> bool:
        """Whether the session cuts further digits of a second off; otherwise it rounds them."""
        return self.mariadb is not self.other_fractions

    @property
    def descending_keys(self) -> bool:
        """Whether the server's keys store `DESC`; older servers accept the word and ignore it."""
        return self.version >= ((10, 8, 0) if self.mariadb else (8, 0, 0))

    @property
    def inline_references(self) -> bool:
        """Whether `REFERENCES` after a column makes a foreign key; older servers accept the clause and ignore it."""
        return self.version >= ((10, 5, 0) if self.mariadb else (9, 0, 0))


def is_utc(zone: str) -> bool:
    """Whether `zone` is one of the servers' names for UTC."""
    return zone.upper() in {"+00:00", "-00:00", "UTC", "GMT", "ETC/UTC"}


def is_strict(sql_mode: int | None) -> bool:
    """Whether a session with these `sql_mode` bits refuses values that do not fit into a column."""
    return sql_mode is None or bool(sql_mode & _STRICT)


MYSQL = Dialect()
"""The dialect that is assumed if nothing is known about the server."""
