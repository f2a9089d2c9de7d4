"""Carries scenarios: each is a folder of SQL, a piece of a task file, and what is to be on the target in the end.

    before.sql          on the source, before the task begins
    target.sql          on the target, before the task begins (a table that is not made here is made by the task)
    target_after.sql    on the target, when the rows are copied
    after.sql           on the source, then, while the task runs
    task.yaml           its rules, in DM's words; `mysql-instances` says which of them the source uses
    expect.yaml         about, verify (schemas that are equal on both sides in the end), expect (queries and their rows)

Scenarios whose databases have nothing to do with each other share one task, since a run costs seconds to begin with; a
scenario alone (`-k routes`) has a task of its own. The accounts have what `pidts grants` prints, and nothing else. On
PostgreSQL a run of several scenarios is killed on the way and started once more.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
import yaml

from pidts import sandbox
from pidts.model import Lsn, PidtsError
from pidts.plan import PlanState
from pidts.sandbox import Server
from pidts.source.position import log_end

FOLDER = Path(__file__).parent
DATABASE = "scenarios"
PIDTS = [sys.executable, "-m", "pidts"]
_MAPS = ("routes", "filters", "expression-filter", "column-mappings")
_REFERENCES = ("route-rules", "filter-rules", "expression-filters", "column-mapping-rules")
_NOT_THERE = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.InvalidSchemaName,
    pymysql.err.ProgrammingError,
    pymysql.err.OperationalError,
)
_LAUNCH = {"mariadb": sandbox.start_mariadb, "postgres": sandbox.start_postgres}


@dataclass(frozen=True)
class Scenario:
    name: str
    task: dict[str, Any]
    expected: dict[str, Any]

    @property
    def targets(self) -> list[str]:
        return self.expected.get("targets", list(_LAUNCH))

    @property
    def group(self) -> str:
        """Scenarios with the same settings of the task itself can share one."""
        own = {key: value for key, value in self.task.items() if key not in {*_MAPS, "mysql-instances"}}
        return json.dumps(own, sort_keys=True)

    @property
    def schemas(self) -> list[str]:
        return re.findall(r"CREATE DATABASE (\w+)", self.text("before.sql"))

    def text(self, file: str) -> str:
        path = FOLDER / self.name / file
        return path.read_text("utf-8") if path.exists() else ""

    def statements(self, file: str) -> list[str]:
        return [statement for statement in re.split(r";\n", self.text(file)) if statement.strip()]


@cache
def scenarios() -> tuple[Scenario, ...]:
    found = []
    for folder in sorted(path.parent for path in FOLDER.glob("*/expect.yaml")):
        task = folder / "task.yaml"
        about = yaml.safe_load((folder / "expect.yaml").read_text("utf-8"))
        found.append(Scenario(folder.name, yaml.safe_load(task.read_text("utf-8")) if task.exists() else {}, about))
    return tuple(found)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if {"scenario", "target"} <= set(metafunc.fixturenames):
        cases = [(scenario, target) for target in _LAUNCH for scenario in scenarios() if target in scenario.targets]
        metafunc.parametrize(("scenario", "target"), cases, ids=[f"{one.name}-{target}" for one, target in cases])


@dataclass
class Carried:
    """What a task has done."""

    target: Server
    verified: dict[str, dict[str, Any]]
    """By schema and table."""

    def rows(self, query: str) -> list[list[Any]]:
        with closing(connect(self.target)) as session, session.cursor() as cursor:
            cursor.execute(query)
            return [list(map(plain, row)) for row in cursor.fetchall()]


def plain(value: Any) -> Any:
    """As expectations write it."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        # PostgreSQL has no whole numbers without a sign, and holds the largest ones as decimal numbers.
        return int(value) if value == int(value) else format(value, "f")
    return str(value) if isinstance(value, date | datetime | timedelta) else value


@pytest.fixture(scope="session")
def carried(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Scenario, str], Carried]]:
    """`carried(scenario, target)`; one run for all that were chosen and can share it."""
    done: dict[tuple[str, str], Carried | str] = {}
    with ExitStack() as servers:

        def of(scenario: Scenario, target: str) -> Carried:
            place = (target, scenario.group)
            if place not in done:
                chosen = [item.callspec.params for item in request.session.items if "carried" in item.fixturenames]
                mates = {
                    each["scenario"].name: each["scenario"]
                    for each in chosen
                    if (each["target"], each["scenario"].group) == place
                }
                task = SharedTask(list(mates.values()), target, tmp_path_factory.mktemp("scenarios"), servers)
                try:
                    done[place] = task.carry()
                except BaseException as error:
                    done[place] = f"{error}\n{task.logs()}"
                    if not isinstance(error, Exception):
                        raise
                finally:
                    task.end()
            found = done[place]
            if isinstance(found, str):
                pytest.fail(found, pytrace=False)
            return found

        yield of


@dataclass
class SharedTask:
    scenarios: Sequence[Scenario]
    kind: str
    folder: Path
    servers: ExitStack
    runs: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def carry(self) -> Carried:
        try:
            self.source = self.servers.enter_context(sandbox.start_mariadb())
            self.target = self.servers.enter_context(_LAUNCH[self.kind]())
        except PidtsError as error:
            if error.code != "sandbox-missing" or os.environ.get("CI") == "true":
                raise
            pytest.skip(str(error))
        if self.kind == "postgres":
            execute(self.target, [f"CREATE DATABASE {DATABASE}"], "postgres")
        for one in self.scenarios:
            execute(self.source, one.statements("before.sql"))
            execute(self.target, one.statements("target.sql"))
        self._write()
        self._make_accounts()
        run = self._start()
        self._wait(run, self._is_copied, "copied")
        for one in self.scenarios:
            execute(self.target, one.statements("target_after.sql"))
        middle = len(self.scenarios) // 2
        is_killed = self.kind == "postgres" and middle > 0
        for one in self.scenarios[:middle]:
            execute(self.source, one.statements("after.sql"))
        if is_killed:
            run.kill()
            run.wait()
        for one in self.scenarios[middle:]:
            execute(self.source, one.statements("after.sql"))
        if is_killed:
            run = self._start()
        with closing(connect(self.source)) as session:
            end = Lsn.at(log_end(session))
        self._wait(run, lambda: min((state.needs for state in self._states()), default=Lsn(0, 0, 0)) >= end, "synced")
        run.send_signal(signal.SIGTERM)
        assert run.wait(60) == 0
        return Carried(self.target, self._verified())

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

    def _write(self) -> None:
        merged: dict[str, Any] = {}
        instance: dict[str, Any] = {
            "source-id": "one",
            "block-allow-list": "ours",
            "from": login(self.source, "scn_repl"),
        }
        for one in self.scenarios:
            for key, value in one.task.items():
                if key in _MAPS:
                    assert not set(value) & set(merged.get(key, {})), f"{one.name}: a rule's name is taken"
                    merged[key] = {**merged.get(key, {}), **value}
                elif key == "mysql-instances":
                    assert set(value[0]) <= set(_REFERENCES), one.name
                    for reference, names in value[0].items():
                        instance[reference] = [*instance.get(reference, []), *names]
                else:
                    merged[key] = value
        target = login(self.target, "scn_app")
        target |= {"type": "postgresql", "database": DATABASE} if self.kind == "postgres" else {"type": "mysql"}
        task = {
            "name": "scenarios",
            "task-mode": "all",
            "target-database": target,
            "mysql-instances": [instance],
            "block-allow-list": {"ours": {"do-dbs": [schema for one in self.scenarios for schema in one.schemas]}},
            "pidts": {"relay": "relay", "spark": {"master": "local[2,4]"}},
            **merged,
        }
        self.task = self.folder / "task.yaml"
        self.task.write_text(yaml.safe_dump(task, allow_unicode=True, sort_keys=False), "utf-8")

    def _make_accounts(self) -> None:
        execute(self.source, ["CREATE USER scn_repl@'%' IDENTIFIED BY 'scn'"])
        quoted = "ROLE scn_app LOGIN PASSWORD" if self.kind == "postgres" else "USER scn_app@'%' IDENTIFIED BY"
        execute(self.target, [f"CREATE {quoted} 'scn'"])
        told = self._command("grants", "--source", url(self.source), "--target", url(self.target), "--json")
        for one in json.loads(told)["servers"]:
            execute({"source": self.source, "target": self.target}[one["side"]], one["statements"])

    def _verified(self) -> dict[str, dict[str, Any]]:
        schemas = [schema for one in self.scenarios for schema in one.expected.get("verify", [])]
        if not schemas:
            return {}
        tables = ",".join(f"{schema}.*" for schema in schemas)
        told = json.loads(self._command("verify", "--tables", tables, "--json", codes=(0, 4)))
        return {table["name"]: table for table in told["tables"]}

    def _command(self, command: str, *options: str, codes: Sequence[int] = (0,)) -> str:
        done = subprocess.run(
            [*PIDTS, command, str(self.task), *options],
            capture_output=True,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        assert done.returncode in codes, f"pidts {command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout.splitlines()[-1]

    def _start(self) -> subprocess.Popen[bytes]:
        with (self.folder / f"run{len(self.runs)}.log").open("wb") as log:
            self.runs.append(
                subprocess.Popen([*PIDTS, "run", str(self.task)], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )
        return self.runs[-1]

    def _states(self) -> list[PlanState]:
        with closing(connect(self.target)) as session, session.cursor() as cursor:
            try:
                cursor.execute("SELECT lsn, copy_progress FROM pidts_meta.checkpoint")
            except _NOT_THERE:
                return []
            return [PlanState.from_checkpoint(Lsn.parse(lsn), copy) for lsn, copy in cursor.fetchall()]

    def _is_copied(self) -> bool:
        states = self._states()
        return bool(states) and not any(state.copying for state in states)

    def _wait(self, run: subprocess.Popen[bytes], claim: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + 200
        while not claim():
            assert run.poll() is None, f"the run ended before all was {what}"
            assert "[error" not in self.logs(), f"a table halted before all was {what}"
            assert time.monotonic() < deadline, f"not {what} in time"
            time.sleep(0.1)


def login(server: Server, user: str) -> dict[str, Any]:
    return {"host": server.host, "port": server.port, "user": user, "password": "scn"}


def url(server: Server) -> str:
    scheme = "postgresql" if server.kind == "postgres" else "mysql"
    database = DATABASE if server.kind == "postgres" else ""
    return f"{scheme}://{server.user}:{server.password}@{server.host}:{server.port}/{database}"


def connect(server: Server, database: str = DATABASE) -> Any:
    if server.kind == "postgres":
        return psycopg.connect(
            host=server.host,
            port=server.port,
            user=server.user,
            password=server.password,
            dbname=database,
            autocommit=True,
        )
    return pymysql.connect(
        host=server.host,
        port=server.port,
        user=server.user,
        password=server.password,
        charset="utf8mb4",
        autocommit=True,
        ssl_disabled=True,
    )


def execute(server: Server, statements: Sequence[str], database: str = DATABASE) -> None:
    """In one session."""
    if not statements:
        return
    with closing(connect(server, database)) as session, session.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
