"""Fixtures for all tests: private servers, shared by the tests of one worker, and a database of each test's own.

A server starts when the first test asks for it, and stops at the end of the session. Tests share the servers, so each
test uses databases of its own (`database`). A test that changes a server's settings, or that kills it, starts its own
server with `pidts.sandbox`.

Property tests try other examples in each run, even in CI, where Hypothesis alone would repeat the same examples.
`PIDTS_SEED` decides which examples are tried. The report shows its number; with the same number, a run or a single test
tries the same examples again. Examples that fail are kept in `.hypothesis/examples`, and are tried first. CI may keep
this folder from run to run.
"""

from __future__ import annotations

import fcntl
import gc
import itertools
import os
import random
import re
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
import structlog
from hypothesis import HealthCheck, core, settings
from hypothesis.database import DirectoryBasedExampleDatabase

from pidts import sandbox
from pidts.model.errors import PidtsError
from pidts.owned_folder import owned_folder
from pidts.sandbox import Server
from pidts.sandbox.made_data import FOLDER

from .examples import examples
from .failed_tests import FailedTests
from .file_times import FileClock, FileTimes
from .files_in_memory import FilesInMemory
from .forked_programs import LoadedPrograms, loaded_programs
from .tidied_server import tidy

SERVER_FIXTURES = ("mariadb", "mysql97", "mysql56", "postgres", "tidb")
STARTS = ("start_mariadb", "start_mysql97", "start_mysql56", "start_postgres", "start_tidb")
MISSING = {"tidb": "left out (TIDB_SERVER is not set)"}
"""The report's words about a server that is not installed and that tests do without."""
IS_QUICK = os.environ.get("PIDTS_TIER") == "quick"
# Many containers forbid writing compiled modules. Then each worker of each run would compile all tests anew, for half a
# minute.
sys.dont_write_bytecode = False
gc.disable()  # off until the tests are collected: nearly no object that is made before is garbage

RunSql = Callable[..., list[tuple[Any, ...]]]
InOneSession = Callable[..., None]

FEW_FILES = 20
"""Below this number of changed test files, each worker compiles them itself."""

_numbers = itertools.count(1)
_started: list[Server] = []
"""The servers that the tests of this worker share."""
_with_server: set[Path] = set()
"""The test files with a test that uses one of these servers."""

# The workers of xdist are children of this process, and inherit the seed from its environment.
SEED = os.environ.setdefault("PIDTS_SEED", str(secrets.randbelow(2**32)))
KEPT = Path(__file__).parents[1] / ".hypothesis" / "examples"

# The profile is loaded here, since each `@settings` of a test module uses the profile of the moment of its import.
settings.register_profile(
    "pidts",
    max_examples=examples(300),
    derandomize=False,
    deadline=None,  # Machines that run these tests are sometimes slow.
    print_blob=True,
    database=DirectoryBasedExampleDatabase(KEPT),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("pidts")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    # Hypothesis keeps no examples with @seed or --hypothesis-seed, so neither of the two sets the seed here.
    core.threadlocal._hypothesis_global_random = random.Random(f"{SEED} {item.nodeid}")
    try:
        return (yield)
    finally:
        structlog.reset_defaults()  # Commands configure the log of the whole process.


def pytest_report_header() -> list[str]:
    versions = sandbox.installed()
    return [
        "servers: "
        + ", ".join(f"{kind} {version or MISSING.get(kind, 'MISSING')}" for kind, version in versions.items()),
        f"examples: PIDTS_SEED={SEED}",
    ]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if terminalreporter.stats.get("failed"):
        terminalreporter.write_line(
            f"PIDTS_SEED={SEED} repeats the examples of this run; failing ones are kept in {KEPT}"
        )


def _no_server(*_: object, **__: object) -> Server:
    pytest.skip("./test quick starts no server")


if IS_QUICK:
    # Test modules are loaded after this file, and use these functions in place of those that start servers.
    for start in STARTS:
        setattr(sandbox, start, _no_server)


def pytest_configure(config: pytest.Config) -> None:
    # Tests in memory create many small objects, of which few are garbage: searching for it cost 5 to 10 %.
    gc.set_threshold(10_000)
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", default=None):
        config.pluginmanager.register(FileClock(), "file-clock")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(FilesInMemory(), "files-in-memory")
        _share_made_data(config)
        config.pluginmanager.register(FileTimes(), "file-times")
        config.pluginmanager.register(FailedTests(), "failed-tests")


def _share_made_data(config: pytest.Config) -> None:
    """Shares data that takes seconds to make: all servers of the run, and of programs that its tests start, copy it."""
    folder = ExitStack()
    os.environ[FOLDER] = str(folder.enter_context(owned_folder("made-data")))
    config.add_cleanup(folder.close)


def pytest_collection_finish() -> None:
    """Excludes the tests and modules that stay to the end from garbage collection: they are a million objects."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Lets one pytest worker compile the tests; the other workers load the compiled files that it has written."""
    if not hasattr(session.config, "workerinput") or _uncompiled() < FEW_FILES:
        return (yield)
    shared = Path(os.environ[FOLDER])
    compiled = shared / "tests-compiled"
    with (shared / "tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if compiled.exists():
            fcntl.flock(lock, fcntl.LOCK_UN)
        result = yield
        compiled.touch()
        return result


def _uncompiled() -> int:
    """Returns the number of test files that were not compiled since they changed."""
    end = f".{sys.implementation.cache_tag}-pytest-{pytest.__version__}.pyc"
    count = 0
    for file in Path(__file__).parent.rglob("test_*.py"):
        compiled = file.parent / "__pycache__" / f"{file.stem}{end}"
        count += not compiled.exists() or compiled.stat().st_mtime < file.stat().st_mtime
    return count


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        needs = {*getattr(item, "fixturenames", ()), *(one for one in parameters if isinstance(one, str))}
        if needs & {*SERVER_FIXTURES, "mysql_like", "target_server"}:
            item.add_marker("server")
            _with_server.add(item.path)
        if any(needs.intersection(mark.args) for mark in item.iter_markers("repeats")):
            item.add_marker("long")
    needs_of: dict[Path, set[str]] = {}
    for item in items:
        needs_of.setdefault(item.path, set()).update(mark.name for mark in item.iter_markers())
    place = {path: number for number, path in enumerate(_in_order(needs_of))}
    items.sort(key=lambda item: place[item.path])


def _in_order(needs_of: dict[Path, set[str]]) -> list[Path]:
    """Returns the test files in the order in which they begin; one worker runs all tests of a file.

    Tests with Spark or a server wait for other processes for most of their time, and the other tests never wait. So the
    two kinds alternate, and some worker always needs a processor. Files with Spark take minutes, and begin first: if one
    of them began last, the other workers would wait for it. For the same reason, files without a server come last.
    """
    waiting = [path for path, needs in needs_of.items() if needs & {"spark", "server"}]
    waiting.sort(key=lambda path: "spark" not in needs_of[path])
    others = [path for path in needs_of if path not in set(waiting)]
    share = {path: 0.9 * number / len(waiting) for number, path in enumerate(waiting)}
    share |= {path: number / len(others) for number, path in enumerate(others)}
    return sorted(share, key=lambda path: share[path])


def _serve(start: Callable[[], Server]) -> Iterator[Server]:
    try:
        server = start()
    except PidtsError as error:
        if error.code != "sandbox-missing" or os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
    with server:
        _started.append(server)
        yield server
        _started.remove(server)


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Server]:
    yield from _serve(sandbox.start_mariadb)


@pytest.fixture(scope="session")
def mysql97() -> Iterator[Server]:
    yield from _serve(sandbox.start_mysql97)


@pytest.fixture(scope="session")
def mysql56() -> Iterator[Server]:
    yield from _serve(sandbox.start_mysql56)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    yield from _serve(sandbox.start_postgres)


@pytest.fixture(scope="session")
def tidb() -> Iterator[Server]:
    yield from _serve(sandbox.start_tidb)


@pytest.fixture(scope="session")
def programs() -> LoadedPrograms:
    """Forks `pidts` and its replicators from a process that has loaded them."""
    return loaded_programs()


@pytest.fixture(scope="module", autouse=True)
def tidy_servers(request: pytest.FixtureRequest) -> None:
    """Removes what the tests of earlier files have left on the MySQL and MariaDB servers.

    A test that reads all tables of a server would read those tables, too. A test that reads a log from its beginning
    would read the log of all earlier tests. GTIDs are also removed if they have several domains or tags: a test that
    reads from the GTID of one event on needs a log with all transactions of the other domains and tags.
    """
    for server in _started if request.path in _with_server else ():
        if server.kind in ("postgres", "tidb"):
            continue
        with closing(_connect(server)) as connection:
            tidy(connection, server.kind)


@pytest.fixture(params=["mariadb", "mysql97", "mysql56"])
def mysql_like(request: pytest.FixtureRequest) -> Server:
    """Runs the test on each server of the MySQL family."""
    return request.getfixturevalue(request.param)


def _run_sql(server: Server, statement: str, *args: Any, database: str | None = None) -> list[tuple[Any, ...]]:
    if server.kind == "postgres":
        with psycopg.connect(
            host=server.host,
            port=server.port,
            user=server.user,
            password=server.password,
            dbname=database or "postgres",
            autocommit=True,
        ) as session:
            cursor = session.execute(statement.encode(), args or None)
            return cursor.fetchall() if cursor.description else []
    with closing(_connect(server, database)) as connection, connection.cursor() as cursor:
        cursor.execute(statement, args or None)
        return list(cursor.fetchall())


def _connect(server: Server, database: str | None = None) -> pymysql.Connection[Any]:
    return pymysql.connect(
        host=server.host,
        port=server.port,
        user=server.user,
        password=server.password,
        database=database,
        charset="utf8mb4",
        autocommit=True,
        ssl_disabled=True,  # A TLS context takes 26 ms of processor time for each of a test's hundreds of statements.
    )


@pytest.fixture(scope="session")
def run_sql() -> RunSql:
    """`run_sql(server, statement, *args, database=None)` returns the rows of one statement, which runs and commits on a
    connection of its own.

    `%s` stands for an argument; without arguments, `%` is an ordinary character.
    """
    return _run_sql


@pytest.fixture(scope="session")
def in_one_session() -> InOneSession:
    """`in_one_session(server, database, *statements)` runs them on a server, one after the other, on one connection."""

    def run(server: Server, database: str, *statements: str) -> None:
        with closing(_connect(server, database)) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    return run


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Iterator[str]:
    """Returns a name that no other test has.

    On each server of the test, a database of this name is created, and dropped after it.
    """
    servers = [
        request.getfixturevalue(name) for name in (*SERVER_FIXTURES, "mysql_like") if name in request.fixturenames
    ]
    words = re.sub(r"[^a-z0-9]+", "_", request.node.name.lower()).strip("_")[:40].strip("_")
    name = f"{words}_{next(_numbers)}"
    unique = {server.port: server for server in servers}.values()
    for server in unique:
        _run_sql(server, _create(server, name))
    yield name
    for server in unique:
        if server.pid is not None:
            _run_sql(server, _drop(server, name))


def _create(server: Server, name: str) -> str:
    return f'CREATE DATABASE "{name}"' if server.kind == "postgres" else f"CREATE DATABASE `{name}`"


def _drop(server: Server, name: str) -> str:
    if server.kind == "postgres":
        return 'DROP DATABASE IF EXISTS "{}" WITH (FORCE)'.format(name.replace('"', '""'))
    return "DROP DATABASE IF EXISTS `{}`".format(name.replace("`", "``"))
