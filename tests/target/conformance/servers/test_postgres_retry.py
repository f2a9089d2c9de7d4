"""PostgreSQL: an error that a retry can end is retried, and the batch is written once; other errors stop at once."""

from __future__ import annotations

import threading

import psycopg
import pytest
from tests.target.conformance.samples import INT, change, checkpoint, create, lsn, table, write

from pidts.apply import Committer, Outcome, Retry, Target
from pidts.model import Halted, Table, TableName, Transient
from pidts.sandbox import Server
from pidts.target.postgres import PostgresSession

pytestmark = pytest.mark.parametrize("kind", ["postgres"])

PASSES = ["40001", "40P01", "55P03", "57014", "57P01", "57P03", "25006", "53100", "53200", "53300", "08006"]
STAYS = ["23514", "22001", "42501", "XX001", "P0001"]


@pytest.fixture
def structure(session: PostgresSession, name: TableName) -> Table:
    made = table(name, {"id": INT, "v": INT})
    create(session, made)
    return made


def failing(session: PostgresSession, structure: Table, state: str) -> None:
    """Makes the table refuse the first statement that writes to it.

    A sequence counts the statements, since it keeps its count although a statement is rolled back.
    """
    place = f'"{structure.name.schema}"."{structure.name.name}"'
    session.execute(f'CREATE SEQUENCE {place[:-1]}_s"')
    session.execute(
        f"CREATE FUNCTION {place}() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN "
        f"IF nextval('{place[:-1]}_s\"') = 1 THEN RAISE EXCEPTION 'made up' USING ERRCODE = '{state}'; END IF; "
        "RETURN NULL; END $f$"
    )
    session.execute(f"CREATE TRIGGER t AFTER INSERT ON {place} FOR EACH STATEMENT EXECUTE FUNCTION {place}()")
    session.execute(f"ALTER TABLE {place} ENABLE ALWAYS TRIGGER t")


def commit(target: Target, session: PostgresSession, structure: Table, task: str) -> list[float]:
    epoch = session.meta.checkpoints.claim(task, "s", 1, checkpoint(100))[0].epoch
    pauses: list[float] = []
    with Committer(target, task, "s", epoch, retry=Retry(attempts=3), sleep=pauses.append) as committer:
        asked = committer.commit(0, lsn(100), checkpoint(200), lambda _: [change(structure, upserts=[(1, 5)])])
        assert asked is Outcome.APPLIED
    return pauses


@pytest.mark.parametrize("state", PASSES)
def test_temporary_errors_are_retried(
    target: Target, session: PostgresSession, structure: Table, task: str, state: str
) -> None:
    failing(session, structure, state)
    assert len(commit(target, session, structure, task)) == 1
    assert session.read_rows(structure).to_pylist() == [{"id": 1, "v": 5}]
    assert [row.lsn for row in session.meta.checkpoints.read(task, "s")] == [lsn(200)]


def test_a_full_disk_of_the_target_is_named(session: PostgresSession) -> None:
    with pytest.raises(Transient, match="PostgreSQL has no space: could not extend file") as error:
        session.execute("DO $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$")
    assert error.value.code == "target-full"


@pytest.mark.parametrize("state", STAYS)
def test_a_permanent_error_stops_at_once_and_names_the_table(
    target: Target, session: PostgresSession, structure: Table, task: str, state: str
) -> None:
    failing(session, structure, state)
    with pytest.raises(Halted, match="made up") as error:
        commit(target, session, structure, task)
    assert error.value.where.table == str(structure.name)
    assert session.count(structure.name) == 0
    assert [row.lsn for row in session.meta.checkpoints.read(task, "s")] == [lsn(100)]


def test_a_deadlock_is_tried_again(
    target: Target, session: PostgresSession, structure: Table, task: str, postgres: Server
) -> None:
    """Another session has locked row 2 and waits for row 1, which this batch writes before row 2."""
    write(session, change(structure, upserts=[(1, 1), (2, 2)]))
    place = f'"{structure.name.schema}"."{structure.name.name}"'
    epoch = session.meta.checkpoints.claim(task, "s", 1, checkpoint(100))[0].epoch
    pauses: list[float] = []
    with (
        psycopg.connect(host=postgres.host, port=postgres.port, user=postgres.user, dbname="postgres") as other,
        Committer(target, task, "s", epoch, retry=Retry(attempts=5), sleep=pauses.append) as committer,
    ):
        other.execute("SET deadlock_timeout = '10s'")
        other.execute(f"UPDATE {place} SET v = 20 WHERE id = 2".encode())

        def cross() -> None:
            other.execute(f"UPDATE {place} SET v = 10 WHERE id = 1".encode())
            other.rollback()

        thread = threading.Thread(target=cross)
        timer = threading.Timer(0.3, thread.start)
        timer.start()
        upserts = [(1, 11), (2, 12)]
        assert committer.commit(0, lsn(100), checkpoint(200), lambda _: [change(structure, upserts=upserts)])
        timer.join()
        thread.join()
    assert len(pauses) == 1
    assert [tuple(row.values()) for row in session.read_rows(structure).to_pylist()] == upserts


def test_a_standby_is_waited_for(target: Target, session: PostgresSession, structure: Table, task: str) -> None:
    """The role may only read in the first attempt, and may write in the second."""
    epoch = session.meta.checkpoints.claim(task, "s", 1, checkpoint(100))[0].epoch
    tries: list[int] = []

    def changes(taken: object) -> list[object]:
        tries.append(1)
        if len(tries) == 1:
            assert isinstance(taken, PostgresSession)
            taken.pipeline.later("SET TRANSACTION READ ONLY")
        return [change(structure, upserts=[(1, 5)])]

    with Committer(target, task, "s", epoch, retry=Retry(attempts=3), sleep=lambda _: None) as committer:
        assert committer.commit(0, lsn(100), checkpoint(200), changes) is Outcome.APPLIED  # type: ignore[arg-type]
    assert len(tries) == 2
    assert session.count(structure.name) == 1
