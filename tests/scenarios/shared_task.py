"""One task that carries several scenarios from its sources to its own target."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pymysql
import pytest
import yaml
from tests.forked_programs import LoadedPrograms
from tests.running import Progress, connect

from pidts import sandbox
from pidts.forked import ForkedProcess
from pidts.model import PidtsError
from pidts.sandbox import Server

DATABASE = "scenarios"
MAPS = ("routes", "filters", "expression-filter", "column-mappings")
LAUNCH = {"mariadb": sandbox.start_mariadb, "postgres": sandbox.start_postgres}
_REFERENCES = ("route-rules", "filter-rules", "expression-filters", "column-mapping-rules")


class ScenarioFolder(Protocol):
    """What the folder of a scenario says."""

    @property
    def name(self) -> str: ...
    @property
    def task(self) -> Mapping[str, Any]: ...
    @property
    def expected(self) -> Mapping[str, Any]: ...
    def schemas(self, source: str) -> list[str]: ...
    def steps(self, file: str) -> list[list[tuple[str, list[str]]]]: ...


@dataclass
class SharedTask:
    scenarios: Sequence[ScenarioFolder]
    kind: str
    folder: Path
    servers: ExitStack
    programs: LoadedPrograms
    second: Server | None = None
    patience: float = 200.0
    """The longest time in seconds until the expected state is reached."""
    runs: list[ForkedProcess] = field(default_factory=list)

    def carry(self) -> tuple[Server, dict[str, dict[str, Any]]]:
        """Runs the task. Returns the target, and the result of `pidts verify` for each table."""
        try:
            first = self.servers.enter_context(sandbox.start_mariadb())
            self.target = self.servers.enter_context(LAUNCH[self.kind]())
        except PidtsError as error:
            if error.code != "sandbox-missing" or os.environ.get("CI") == "true":
                raise
            pytest.skip(str(error))
        self.sources = {"one": first} | ({"two": self.second} if self.second is not None else {})
        if self.kind == "postgres":
            execute(self.target, [f"CREATE DATABASE {DATABASE}"], "postgres")
        for one in self.scenarios:
            self._on_sources(one.steps("before.sql"))
            self._on_target(one, "target.sql")
        self._write()
        self._make_accounts()
        run = self._start()
        self._wait(run, self._are_copied, "copied")
        for one in self.scenarios:
            self._on_target(one, "target_after.sql")
        run = self._change_half(run)
        ends = [self._progress[name].has(self._sessions[name]) for name in self.sources]
        self._wait(run, lambda: all(has() for has in ends), "synced")
        run.send_signal(signal.SIGTERM)
        assert run.wait(self.patience) == 0
        return self.target, self._verified()

    def logs(self) -> str:
        paths = [*sorted(self.folder.glob("*.log")), *self.folder.glob("relay/*/*/replicator.log")]
        return "\n".join(path.read_text(errors="replace")[-6000:] for path in paths)

    def end(self) -> None:
        for run in self.runs:
            if run.poll() is None:
                run.send_signal(signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    run.wait(30)
                run.kill()
        if self.second is not None:
            made = [f"DROP DATABASE IF EXISTS {schema}" for one in self.scenarios for schema in one.schemas("two")]
            execute(self.second, [*made, "DROP USER IF EXISTS scn_repl@'%'"])

    def _change_half(self, run: ForkedProcess) -> ForkedProcess:
        """Makes the changes of both halves. Returns the run that is active afterwards.

        If the target is PostgreSQL, `run` may be killed between the halves, and another run starts.
        """
        is_killed = self.kind == "postgres" and (self.second is not None or len(self.scenarios) > 1)
        middle = len(self.scenarios) // 2
        early: list[list[tuple[str, list[str]]]] = []
        late: list[list[tuple[str, list[str]]]] = []
        for number, one in enumerate(self.scenarios):
            steps = one.steps("after.sql")
            if len(steps) == 1:
                (early if number < middle else late).append(steps[0])
            else:
                early.append(steps[0])
                late += steps[1:]
        self._on_sources(early)
        with closing(connect(self.target, DATABASE)) as session, session.cursor() as cursor:
            for one in self.scenarios:
                for claim in one.expected.get("meanwhile", []):
                    self._wait(run, lambda claim=claim: _holds(cursor, claim, self.kind), f"{one.name}: {claim}")
        if is_killed:
            run.kill()
            run.wait()
        self._on_sources(late)
        return self._start() if is_killed else run

    def _on_sources(self, steps: Sequence[Sequence[tuple[str, list[str]]]]) -> None:
        for source, statements in (piece for step in steps for piece in step):
            execute(self.sources[source], statements)

    def _on_target(self, one: ScenarioFolder, file: str) -> None:
        for _, statements in one.steps(file)[0]:
            execute(self.target, statements, DATABASE)

    def _write(self) -> None:
        merged: dict[str, Any] = {}
        instances: dict[str, dict[str, Any]] = {
            name: {"source-id": name, "block-allow-list": name, "from": login(server, "scn_repl")}
            for name, server in self.sources.items()
        }
        for one in self.scenarios:
            for key, value in one.task.items():
                if key in MAPS:
                    assert not set(value) & set(merged.get(key, {})), f"{one.name}: a rule's name is taken"
                    merged[key] = {**merged.get(key, {}), **value}
                elif key == "mysql-instances":
                    # One value for all scenarios, or one for each.
                    for about, instance in zip(value * (3 - len(value)), instances.values(), strict=False):
                        assert set(about) <= set(_REFERENCES), one.name
                        for reference, names in about.items():
                            instance[reference] = [*instance.get(reference, []), *names]
                else:
                    merged[key] = value
        target = login(self.target, "scn_app")
        target |= {"type": "postgresql", "database": DATABASE} if self.kind == "postgres" else {"type": "mysql"}
        task = {
            "name": "scenarios",
            "task-mode": "all",
            "target-database": target,
            "mysql-instances": list(instances.values()),
            "block-allow-list": {
                name: {"do-dbs": [schema for one in self.scenarios for schema in one.schemas(name)]}
                for name in self.sources
            },
            "pidts": {"relay": "relay", "spark": {"master": "local[2,4]"}},
            **merged,
        }
        self.task = self.folder / "task.yaml"
        self.task.write_text(yaml.safe_dump(task, allow_unicode=True, sort_keys=False), "utf-8")

    def _make_accounts(self) -> None:
        for server in self.sources.values():
            execute(server, ["CREATE USER scn_repl@'%' IDENTIFIED BY 'scn'"])
        quoted = "ROLE scn_app LOGIN PASSWORD" if self.kind == "postgres" else "USER scn_app@'%' IDENTIFIED BY"
        execute(self.target, [f"CREATE {quoted} 'scn'"], DATABASE)
        asked = [word for server in self.sources.values() for word in ("--source", url(server))]
        found = json.loads(self._command("grants", *asked, "--target", url(self.target), "--json"))["servers"]
        sources = iter(self.sources.values())
        for one in found:
            execute(self.target if one["side"] == "target" else next(sources), one["statements"], DATABASE)

    def _verified(self) -> dict[str, dict[str, Any]]:
        schemas = [schema for one in self.scenarios for schema in one.expected.get("verify", [])]
        if not schemas:
            return {}
        tables = ",".join(f"{schema}.*" for schema in schemas)
        found = json.loads(self._command("verify", "--tables", tables, "--json", codes=(0, 4)))
        return {table["name"]: table for table in found["tables"]}

    def _command(self, command: str, *options: str, codes: Sequence[int] = (0,)) -> str:
        done = self.programs.run([command, str(self.task), *options], self.patience)
        said = done.stdout.decode()
        assert done.returncode in codes, f"pidts {command}: {done.returncode}\n{said}\n{done.stderr.decode()}"
        return said.splitlines()[-1]

    def _start(self) -> ForkedProcess:
        with (self.folder / f"run{len(self.runs)}.log").open("wb") as log:
            self.runs.append(self.programs.start(["run", str(self.task)], log, log))
        return self.runs[-1]

    @cached_property
    def _sessions(self) -> dict[str, Any]:
        return {name: self.servers.enter_context(closing(connect(server))) for name, server in self.sources.items()}

    @cached_property
    def _progress(self) -> dict[str, Progress]:
        session = self.servers.enter_context(closing(connect(self.target, DATABASE)))
        return {name: Progress(session, name) for name in self.sources}

    def _are_copied(self) -> bool:
        return all(progress.is_copied() for progress in self._progress.values())

    def _wait(self, run: ForkedProcess, claim: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + self.patience
        while not claim():
            assert run.poll() is None, f"the run ended before this: {what}"
            assert "[error" not in self.logs(), f"a table halted before this: {what}"
            assert time.monotonic() < deadline, f"not in time: {what}"
            time.sleep(0.1)


def of_kind(found: Any, kind: str) -> Any:
    """Returns what an expectation says for this kind of target."""
    return found[kind] if isinstance(found, dict) else found


def _holds(cursor: Any, claim: Mapping[str, Any], kind: str) -> bool:
    try:
        cursor.execute(of_kind(claim["query"], kind))
    except (psycopg.Error, pymysql.err.Error):
        return False  # A column does not exist yet.
    return [list(map(plain, row)) for row in cursor.fetchall()] == of_kind(claim["rows"], kind)


def plain(value: Any) -> Any:
    """Returns values in the form of the expectations."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        # PostgreSQL has no unsigned integers, and stores the largest ones as decimals.
        return int(value) if value == int(value) else format(value, "f")
    return str(value) if isinstance(value, date | datetime | timedelta) else value


def login(server: Server, user: str) -> dict[str, Any]:
    return {"host": server.host, "port": server.port, "user": user, "password": "scn"}


def url(server: Server) -> str:
    scheme = "postgresql" if server.kind == "postgres" else "mysql"
    database = DATABASE if server.kind == "postgres" else ""
    return f"{scheme}://{server.user}:{server.password}@{server.host}:{server.port}/{database}"


def execute(server: Server, statements: Sequence[str], database: str = "") -> None:
    """Runs statements in one session."""
    if not statements:
        return
    with closing(connect(server, database)) as session, session.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
