"""The errors of PiDTS. Each error says what happened, where, and what to do now."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class Where:
    """The place of an error; only known parts are filled in."""

    source: str = ""
    position: str = ""
    table: str = ""
    key: str = ""
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        named = [("source", self.source), ("at", self.position), ("table", self.table), ("key", self.key)]
        parts = [f"{name} {value}" for name, value in named if value]
        if self.file:
            parts.insert(0, f"{self.file}:{self.line}" if self.line else self.file)
        return printable(", ".join(parts))


NOWHERE = Where()
TRANSACTION_TOO_LARGE = "transaction-too-large"
"""The code of an error that is due to a transaction's size, and not to one of its rows."""
TARGET_LOST = "target-lost"
"""The code of the error if a session with the target is lost. A new session may succeed."""
_CONTROLS = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, characters for the direction of a text, line ends, and surrogates, which cannot be printed.

Other characters stay as they are, even invisible ones, so that a name in a command is the name of the table.
"""
_CONTROLS_IN_LINES = re.compile(f"(?![\n\t]){_CONTROLS.pattern}")
_MOST = 4000
"""The most characters of a text that an error shows: a server may send a text of any length."""


def printable(text: str) -> str:
    """Returns a text for a terminal: without escape sequences, and of limited length.

    Errors quote texts from servers, even from servers that have not proven their identity.
    """
    if len(text) > _MOST:
        text = f"{text[:_MOST]}… ({len(text) - _MOST:,} characters more)"
    return escaped(text)


def escaped(text: str) -> str:
    """Returns a text with its control characters escaped, except for line ends and tabs."""
    return text if text.isprintable() else _CONTROLS_IN_LINES.sub(_escape, text)


def in_one_line(text: str) -> str:
    """Returns a text with its control characters escaped, line ends included."""
    return text if text.isprintable() else _CONTROLS.sub(_escape, text)


def shortened(text: str, most: int) -> str:
    """Returns a text of at most this many characters: the beginning, if the text is longer."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def _escape(found: re.Match[str]) -> str:
    return ascii(found[0])[1:-1]


def listed(names: Iterable[object], most: int = 5) -> str:
    """Returns the first names, and how many more there are."""
    found = list(map(str, names))
    more = len(found) - most
    return ", ".join(found[:most]) + (f" and {more:,} more" if more > 0 else "")


def plural(noun: str, count: int, one: str = "", many: str = "") -> str:
    """Returns the count with its noun, and with the verb for one or for many: 1 row differs, 2 rows differ."""
    words = f"{count:,} {noun} {one}" if count == 1 else f"{count:,} {noun}s {many}"
    return words.rstrip()


def named(noun: str, names: Iterable[object], one: str = "", many: str = "") -> str:
    """Returns the noun with its names, and the verb for one or for many: column a is, columns a, b are."""
    found = list(map(str, names))
    plural_end, verb = ("", one) if len(found) == 1 else ("s", many)
    return f"{noun}{plural_end} {', '.join(found)} {verb}".rstrip()


def plain_value(value: object) -> str:
    """Returns the text of a value of a row, as a message shows it."""
    return "NULL" if value is None else repr(value) if isinstance(value, str | bytes) else str(value)


def utc_time(seconds: float) -> str:
    """Returns a time as a message shows it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def sentence(text: str) -> str:
    """Returns the text with a full stop at its end, unless it already ends a sentence."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


class PidtsError(Exception):
    """An error for the user to read. `exit_code` is the exit code of the command."""

    exit_code: ClassVar[int] = 1
    usual_todo: ClassVar[str] = ""
    """The advice for errors of this class that have no advice of their own."""

    def __init__(
        self,
        code: str,
        what: str,
        *,
        where: Where = NOWHERE,
        todo: str = "",
        instead: tuple[str, ...] = (),
        values: tuple[str, ...] = (),
    ) -> None:
        """`instead`: if a schema change fails, statements for the target that an operator may complete and run.

        `values` are lines about a row's values on source and target. The error's text and JSON do not have these lines,
        so no log line has them.
        """
        what, todo = printable(what), printable(todo)
        super().__init__(code, what, where, todo)
        self.code, self.what, self.where, self.todo, self.instead = code, what, where, todo, instead
        self.values = tuple(map(printable, values))

    def __reduce__(self) -> tuple[Any, ...]:
        """Makes errors picklable: in Spark, they cross process borders."""
        return (_rebuild, (type(self), self.code, self.what, self.where, self.todo, self.instead, self.values))

    @property
    def lacks_privilege(self) -> bool:
        """Whether a server has refused a statement because the account lacks a privilege."""
        return self.code == "missing-privilege"

    @property
    def is_duplicate(self) -> bool:
        """Whether the target has refused a row because another row has one of its unique values."""
        return False

    def __str__(self) -> str:
        text = f"[{self.code}] {self.what}"
        if place := str(self.where):
            text += f" ({place})"
        # A text from a server or from Spark may already end with a full stop.
        return f"{sentence(text)} {self.todo}" if self.todo else text

    def to_json(self) -> dict[str, Any]:
        """Returns code, message, place and advice for programs."""
        where = {name: getattr(self.where, name) for name in Where.__slots__ if getattr(self.where, name)}
        return {"code": self.code, "what": self.what, "where": where, "todo": self.todo}


def _rebuild(
    kind: type[PidtsError],
    code: str,
    what: str,
    where: Where,
    todo: str,
    instead: tuple[str, ...] = (),
    values: tuple[str, ...] = (),
) -> PidtsError:
    return kind(code, what, where=where, todo=todo, instead=instead, values=values)


class ConfigError(PidtsError):
    """The command or the task file is wrong."""

    exit_code = 2


class PrecheckFailed(PidtsError):
    """A server is not suitable for the task; nothing was written."""

    exit_code = 3


class DatabaseMissing(PrecheckFailed):
    """A server has no database of the given name. Every account gets the same answer."""


class LoginRefused(PrecheckFailed):
    """A server refuses the user or the password."""


class AccessNotGranted(PrecheckFailed):
    """A server knows the account, but gives it no access from this machine, or no access to the database."""


class ServerDown(PrecheckFailed):
    """A server does not answer. A supervisor tries again, since the server may come back without help."""


class Halted(PidtsError):
    """An error after which continuing would lose or invent data: an operator has to decide."""

    exit_code = 5


class RowsUnknown(Halted):
    """A schema change gives existing rows values that only the source knows.

    The statements in `instead` create the columns. If the table is copied again, its rows get the values.
    """

    def for_operator(self) -> Halted:
        """Returns the halt of a table that is not copied again."""
        return self


class ValuesGenerated(RowsUnknown):
    """A schema change gives other values to a column that the target generates.

    The statements in `instead` make it a plain column, so that a copy can write the values. An operator may need the
    generated column: the halt does not advise these statements.
    """

    def for_operator(self) -> Halted:
        """Returns the halt of a table that is not copied again."""
        return Halted(self.code, self.what, where=self.where, todo=self.todo)


class StructureChanged(Halted):
    """A table does not have the structure that the caller expects."""


class DecodeError(Halted):
    """Bytes of the log cannot be decoded, or contradict other bytes of the log."""

    usual_todo = (
        "The relay or the source's log is damaged. What to do, step by step: docs/reference/errors.md, "
        "'Bytes that cannot be decoded'"
    )


class Fenced(PidtsError):
    """Another run of the same task has taken over, and this run must not write any more.

    The fenced run does not begin again by itself, since it would take the task back from the other run.
    """

    exit_code = 5


class Transient(PidtsError):
    """An error that another attempt may avoid: a lost connection, a deadlock, a restart of the server."""

    usual_todo = "A running task tries again by itself. If the error has ended a command, run the command again"


class OtherCheckpoint(Transient):
    """A worker's transaction wrote nothing: the stored checkpoint differs from the worker's last checkpoint."""
