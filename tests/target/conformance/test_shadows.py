"""The record of an online schema change is updated in the commit that records its statement as done."""

from __future__ import annotations

import pytest
from tests.crashes import ProcessDied

from pidts.apply import DdlRunner, Outcome, Retry, SchemaChange, Target
from pidts.model import LoggedStatement, Shadow, Table, TableName

from .breaking import Breaking
from .samples import INT, checkpoint, lsn, table

pytestmark = pytest.mark.repeats("mysql56", "mysql97")
NAME, OTHER = TableName("Shop", "_ä'`\"_new"), TableName("shop", "_b_gho")


def shadow(*texts: str, structure: Table | None = None) -> Shadow:
    logged = tuple(
        LoggedStatement(text, "shop", 1 << 2, utf8_literals=number % 2 == 0) for number, text in enumerate(texts)
    )
    return Shadow(structure or table(NAME, {"id": INT}), logged)


def remembered(target: Target, task: str) -> dict[TableName, Shadow]:
    session = target.connect()
    try:
        return session.meta.shadows.load(task, "s")
    finally:
        session.close()


def test_shadows_are_remembered_and_forgotten(target: Target, task: str) -> None:
    first, unknown = shadow("ALTER TABLE \"_ä\" ADD a int COMMENT 'x\\y'"), Shadow(None, complete=False)
    session = target.connect()
    session.begin()
    session.meta.shadows.save(task, "s", {NAME: first, OTHER: unknown})
    session.rollback()
    assert remembered(target, task) == {}
    session.begin()
    session.meta.shadows.save(task, "s", {NAME: first, OTHER: unknown})
    session.commit()
    assert remembered(target, task) == {NAME: first, OTHER: unknown}
    session.begin()
    session.meta.shadows.save(task, "s", {OTHER: None, NAME: unknown})
    session.commit()
    assert remembered(target, task) == {NAME: unknown}
    session.begin()
    session.meta.shadows.replace(task, "s", {OTHER: first})
    session.commit()
    assert remembered(target, task) == {OTHER: first}
    assert session.meta.shadows.load(task, "t") == {}
    session.close()


@pytest.mark.parametrize("kind", ["values", "values-journaled", "postgres", "mariadb"])
def test_the_record_changes_with_the_journal_wherever_it_is_interrupted(target: Target, task: str) -> None:
    session = target.connect()
    epoch = session.meta.checkpoints.claim(task, "s", 1, checkpoint(100))[0].epoch
    session.close()
    change = SchemaChange(statement=None, text="ALTER ...", before={}, after={}, shadows={NAME: shadow("ALTER ...")})
    dry = Breaking(target)
    assert DdlRunner(dry, task, "s", epoch).run(change, lsn(110)) is Outcome.APPLIED
    for number in range(len(dry.points)):
        place = lsn(200 + number)
        moved = SchemaChange(statement=None, text="CREATE", before={}, after={}, shadows={NAME: shadow(f"of {number}")})
        with pytest.raises(ProcessDied):
            DdlRunner(Breaking(target, number), task, "s", epoch, retry=Retry(attempts=1)).run(moved, place)
        runner = DdlRunner(target, task, "s", epoch)
        assert runner.is_done(place) == (runner.shadows()[NAME] == shadow(f"of {number}"))
        assert runner.run(moved, place) in (Outcome.APPLIED, Outcome.ALREADY)
        assert runner.is_done(place)
        assert remembered(target, task) == {NAME: shadow(f"of {number}")}
