"""Runs scenarios: each is a folder with SQL, a piece of a task file, and what the target must have in the end.

    before.sql          on the source, before the task begins
    target.sql          on the target, before the task begins (a table that is not made here is made by the task)
    target_after.sql    on the target, when the rows are copied
    after.sql           on the source, then, while the task runs
    task.yaml           its rules, in DM's words; `mysql-instances` says which of them the source uses
    expect.yaml         about, verify (schemas that are equal on both sides in the end), expect (queries and their rows)

Scenarios whose databases have nothing to do with each other share one task, since the start of a run takes seconds; a
scenario that is run alone (`-k routes`) has a task of its own. The accounts have what `pidts grants` prints, and nothing else. If
the target is PostgreSQL, a run of several scenarios is killed in between and started once more.

A scenario that merges shards (`is-sharding`, `shard-mode`) has two sources, `one` (MariaDB) and `two` (MySQL 9.7). A line
`-- on two` in its SQL says where what follows is run, up to the next such line. At the line `-- meanwhile` in
after.sql, the test waits until the queries under `meanwhile` in expect.yaml have the expected rows. Then the run is
killed, the rest of after.sql is run on the sources, and the run is started once more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.forked_programs import LoadedPrograms
from tests.running import connect

from pidts.sandbox import Server

from .shared_task import DATABASE, LAUNCH, MAPS, SharedTask, plain

FOLDER = Path(__file__).parent
_PLACE = re.compile(r"^-- (on (?P<source>\w+)|meanwhile)\n", re.MULTILINE)


@dataclass(frozen=True)
class Scenario:
    name: str
    task: dict[str, Any]
    expected: dict[str, Any]

    @property
    def targets(self) -> list[str]:
        return self.expected.get("targets", list(LAUNCH))

    @property
    def group(self) -> str:
        """Returns the scenario's settings for a task as a whole. Scenarios with the same settings can share one task."""
        own = {key: value for key, value in self.task.items() if key not in {*MAPS, "mysql-instances"}}
        return json.dumps(own, sort_keys=True)

    @property
    def is_sharded(self) -> bool:
        return bool({"is-sharding", "shard-mode"} & set(self.task))

    def schemas(self, source: str) -> list[str]:
        return [
            schema
            for place, statements in self.steps("before.sql")[0]
            if place == source
            for schema in re.findall(r"CREATE DATABASE (\w+)", ";".join(statements))
        ]

    def steps(self, file: str) -> list[list[tuple[str, list[str]]]]:
        """Returns the statements before and after `-- meanwhile`, each part with the sources on which they run."""
        path = FOLDER / self.name / file
        steps: list[list[tuple[str, list[str]]]] = [[]]
        source, start, text = "one", 0, path.read_text("utf-8") if path.exists() else ""
        for mark in (*_PLACE.finditer(text), None):
            piece = text[start : mark.start() if mark else len(text)]
            statements = [statement for statement in re.split(r";\n", piece) if statement.strip()]
            if statements:
                steps[-1].append((source, statements))
            if mark is not None:
                start = mark.end()
                if mark["source"]:
                    source = mark["source"]
                else:
                    steps.append([])
        return steps


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
        cases = [
            pytest.param(scenario, target, id=f"{scenario.name}-{target}", marks=_marks(scenario, target))
            for target in LAUNCH
            for scenario in scenarios()
            if target in scenario.targets
        ]
        metafunc.parametrize(("scenario", "target"), cases)


def _marks(scenario: Scenario, target: str) -> tuple[pytest.MarkDecorator, ...]:
    """Returns the marks of a run, which takes half a minute. Only the runs that many scenarios share, into PostgreSQL,
    and one more are in `./test`.
    """
    can_share = target == "postgres" and set(scenario.task) <= {*MAPS, "mysql-instances"}
    is_core = target == "postgres" and scenario.name == "shard_optimistic"
    return () if can_share or is_core else (pytest.mark.long,)


@dataclass
class Carried:
    """The target to which a task has carried the rows, and what `pidts verify` found there."""

    target: Server
    verified: dict[str, dict[str, Any]]
    """The result of `pidts verify`, by schema and table."""

    def rows(self, query: str) -> list[list[Any]]:
        with closing(connect(self.target, DATABASE)) as session, session.cursor() as cursor:
            cursor.execute(query)
            return [list(map(plain, row)) for row in cursor.fetchall()]


@pytest.fixture(scope="session")
def carried(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, programs: LoadedPrograms
) -> Iterator[Callable[[Scenario, str], Carried]]:
    """`carried(scenario, target)` runs the scenario; one run serves all chosen scenarios that can share it."""
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
                # MySQL 9.7 takes seconds to start, so only scenarios with merged shards get it as their second source.
                second = request.getfixturevalue("mysql97") if scenario.is_sharded else None
                folder = tmp_path_factory.mktemp("scenarios")
                task = SharedTask(list(mates.values()), target, folder, servers, programs, second)
                try:
                    done[place] = Carried(*task.carry())
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
