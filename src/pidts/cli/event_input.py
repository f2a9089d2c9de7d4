"""Where `pidts events` reads a log: from a server, or from binary log files."""

from __future__ import annotations

import glob
import mmap
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from pidts.binlog.walk import MAGIC, iter_raw
from pidts.cli.event_range import Point
from pidts.model import ConfigError, GtidSet, Lsn, Position, Where
from pidts.source.connection import SourceConfig, connect
from pidts.source.dump import BinlogStream
from pidts.source.position import binary_logs, position

_ENCRYPTED = b"\xfdbin"
_FIRST_EVENT = 4
_VARIABLE = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Piece:
    """Raw events that follow each other."""

    events: Iterable[bytes | memoryview]
    begins: Position | None = None
    """Set where the reading begins and where another file does, if it is known by then."""


class LogInput(Protocol):
    """A log to be read once."""

    def pieces(self) -> Iterator[Piece]:
        """All of it, in order."""

    @property
    def server(self) -> SourceConfig | None:
        """Who knows the tables as they are now."""


@dataclass(frozen=True, slots=True)
class ServerInput:
    """A server's log, as a replica receives it; up to its end, or for ever."""

    server: SourceConfig
    start: Point | None
    follow: bool

    def pieces(self) -> Iterator[Piece]:
        """One burst after the other."""
        start = self._start()
        with BinlogStream(self.server, start, non_blocking=not self.follow) as stream:
            yield Piece((), start if isinstance(start, Position) else None)
            while not stream.ended:
                if events := stream.read_burst():
                    yield Piece(events)

    def _start(self) -> Position | GtidSet:
        if self.start is not None and not isinstance(self.start, Lsn):
            return self.start
        with closing(connect(self.server)) as session:
            here, _ = position(session)
            if self.start is None:
                return here if self.follow else Position(binary_logs(session)[0][0], _FIRST_EVENT)
        # It may name a row, and a row cannot be read without what stands before it.
        return Position.of(here.base, self.start.log_index, _FIRST_EVENT)


@dataclass(frozen=True, slots=True)
class FileInput:
    """Binary log files, in the order of their numbers."""

    paths: tuple[Path, ...]
    server: SourceConfig | None = None

    def pieces(self) -> Iterator[Piece]:
        """One file after the other."""
        for path in self.paths:
            content = _content(path)
            try:
                begins = Position(path.name, _FIRST_EVENT)
            except ValueError as error:
                raise ConfigError("not-a-binlog", str(error), where=Where(file=str(path))) from None
            yield Piece(iter_raw(content), begins)


def open_input(
    sources: Sequence[str], *, start: Point | None, follow: bool, schema_from: str, environ: Mapping[str, str]
) -> LogInput:
    """A server's URL, or files and patterns of files."""
    if "://" in sources[0]:
        if len(sources) > 1:
            raise ConfigError("usage", "only one server can be read at a time")
        return ServerInput(server_of(sources[0], environ), start, follow)
    if follow:
        raise ConfigError("usage", "--follow needs a server: a file's end says nothing about what comes")
    paths = {Path(name) for pattern in sources for name in glob.glob(pattern) or [pattern]}  # noqa: PTH207 - may be absolute
    ordered = tuple(sorted(paths, key=lambda path: (path.name.rpartition(".")[0], _number(path), str(path))))
    return FileInput(ordered, server_of(schema_from, environ) if schema_from else None)


def server_of(url: str, environ: Mapping[str, str]) -> SourceConfig:
    """A URL whose password may be `${NAME}`, or stand in MYSQL_PWD."""
    config = SourceConfig.from_url(url)

    def value(found: re.Match[str]) -> str:
        if found[1] not in environ:
            raise ConfigError("missing-variable", f"the environment variable {found[1]} is not set")
        return environ[found[1]]

    password = _VARIABLE.sub(value, config.password) if config.password else environ.get("MYSQL_PWD", "")
    return replace(config, user=_VARIABLE.sub(value, config.user), password=password)


def _content(path: Path) -> memoryview:
    where = Where(file=str(path))
    try:
        with path.open("rb") as file:
            head = file.read(len(MAGIC))
            content = (
                memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) if head == MAGIC else memoryview(b"")
            )
    except OSError as error:
        raise ConfigError("unreadable-file", f"the log file cannot be read: {error.strerror}", where=where) from None
    if head == _ENCRYPTED:
        todo = "Read it from its server, which sends it in plain"
        raise ConfigError("not-a-binlog", "the log file is encrypted", where=where, todo=todo)
    if head != MAGIC:
        raise ConfigError("not-a-binlog", "this is no binary log file", where=where)
    return content[len(MAGIC) :]


def _number(path: Path) -> int:
    number = path.name.rpartition(".")[2]
    return int(number) if number.isascii() and number.isdigit() else 0
