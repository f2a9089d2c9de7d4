"""Measures the limit of a copy: the servers' own bulk commands, without a program between the servers.

The source writes ranges of ids into files in memory (`SELECT ... INTO OUTFILE`). A pipe joins the files of a table, and
the target reads the pipe with one command for each table (`LOAD DATA INFILE`, `COPY`). Two tables are copied at the
same time; reading and loading of a table overlap. This copy is not consistent, it cannot be continued after a crash,
and the target gets no later changes: a real copy has more to do.
"""

from __future__ import annotations

import os
import queue
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

from origin import STREAMS, CopiedTable, Source, outfile
from targets import TargetServer
from workload import SCHEMA

_RANGE = 50_000
"""The number of rows in a file: some megabytes."""
_AHEAD = 4
"""The largest number of files that wait to be loaded."""
_MEMORY = Path("/dev/shm")

Load = Callable[[TargetServer, CopiedTable, Path], None]


def run(source: Source, target: TargetServer, load: Load) -> float:
    """Creates the tables as PiDTS does, copies all rows, and returns the seconds that the rows took."""
    _make_tables(source, target)
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as name:
        folder = Path(name)
        folder.chmod(0o777)
        begun = time.perf_counter()
        with ThreadPoolExecutor(STREAMS) as pool:
            work = [pool.submit(_stream, source, target, load, stream, folder) for stream in range(STREAMS)]
            for each in work:
                each.result()
        return time.perf_counter() - begun


def _stream(source: Source, target: TargetServer, load: Load, stream: int, folder: Path) -> None:
    for table in source.tables:
        if table.stream == stream:
            pipe = folder / f"{table.name}.pipe"
            os.mkfifo(pipe)
            pipe.chmod(0o666)
            with _Feeding(source, table, folder, pipe):
                load(target, table, pipe)


class _Feeding:
    """Fills a pipe with rows from the source, one range after the other."""

    def __init__(self, source: Source, table: CopiedTable, folder: Path, pipe: Path) -> None:
        self._source, self._table, self._folder, self._pipe = source, table, folder, pipe
        self._files: queue.Queue[Path | None] = queue.Queue(_AHEAD)
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._read, self._join)]

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.join(10)

    def _read(self) -> None:
        try:
            with closing(self._source.connect()) as session, session.cursor() as cursor:
                for first, behind in self._table.id_ranges(_RANGE):
                    file = self._folder / f"{self._table.name}.{first}"
                    outfile(cursor, self._table, first, behind, file)
                    self._files.put(file)
        finally:
            self._files.put(None)

    def _join(self) -> None:
        with self._pipe.open("wb", buffering=0) as pipe:
            while file := self._files.get():
                with file.open("rb") as data:
                    shutil.copyfileobj(data, pipe, 1 << 20)
                file.unlink()


def _make_tables(source: Source, target: TargetServer) -> None:
    with closing(target.target.connect()) as session:
        session.meta.prepare()
        for table in source.structures().values():
            for statement in session.schema.create_statements(table).statements:
                session.execute(statement)


def into_mysql(settings: str) -> Load:
    def load(target: TargetServer, table: CopiedTable, pipe: Path) -> None:
        names, charset = ", ".join(table.columns), table.shape.charset
        with closing(target.connect()) as session, session.cursor() as cursor:
            cursor.execute(f"SET {settings}")
            cursor.execute(
                f"LOAD DATA INFILE '{pipe}' INTO TABLE {SCHEMA}.{table.name} CHARACTER SET {charset} ({names})"
            )

    return load


def into_postgres(*, keys_after: bool) -> Load:
    """Returns a function that loads a table. The keys exist before the rows, or are created after all rows."""

    def load(target: TargetServer, table: CopiedTable, pipe: Path) -> None:
        name = f"{SCHEMA}.{table.name}"
        with closing(target.connect(autocommit=False)) as session:
            run: Any = session.execute
            keys = _keys(session, name) if keys_after else []
            for key, _ in keys:
                run(f"ALTER TABLE {name} DROP CONSTRAINT {key}")
            run("SET maintenance_work_mem = '256MB'")
            run(f"COPY {name} ({', '.join(table.columns)}) FROM '{pipe}'")
            for key, text in keys:
                run(f"ALTER TABLE {name} ADD CONSTRAINT {key} {text}")
            session.commit()

    return load


def _keys(session: Any, name: str) -> list[tuple[str, str]]:
    found = session.execute(
        "SELECT quote_ident(conname), pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = %s::regclass",
        (name,),
    )
    return list(found.fetchall())


_POSTGRES = {"limit": into_postgres(keys_after=True), "limit2": into_postgres(keys_after=False)}
_MYSQL = {"limit": into_mysql("autocommit = 1"), "limit2": into_mysql("unique_checks = 0, foreign_key_checks = 0")}


def ways(kind: str) -> dict[str, Load]:
    """Returns two functions that load a table; the faster one is the limit with which PiDTS is compared."""
    return _POSTGRES if kind == "postgres" else _MYSQL
