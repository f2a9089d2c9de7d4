"""After a repair, the command that copies tables without a key again is the last line."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any, cast

import pytest

from pidts.cli.repair import show_repairs
from pidts.model import TableName
from pidts.task.compare.repair import Repairs
from pidts.verify import Report, TableReport


class Config:
    name = "t"
    shell_path = "'a b.yaml'"
    source = dataclasses.make_dataclass("Source", ["source_id"])("s")


def last_lines(capsys: pytest.CaptureFixture[str], *tables: TableReport, applies: bool) -> list[str]:
    work = Repairs("t", cast("Any", None), threading.Event(), print, apply=applies, removes=False)
    work.report = Report(tables, ())
    assert show_repairs(cast("Any", Config), work, as_json=False) == 4
    return capsys.readouterr().err.splitlines()[-2:]


@pytest.mark.parametrize("applies", [False, True])
def test_the_last_line_is_the_command_that_copies_tables_without_a_key(
    capsys: pytest.CaptureFixture[str], *, applies: bool
) -> None:
    keyed = TableReport(TableName("d", "t"), rows=3, missing=1)
    bag, log = (TableReport(TableName("d", name), rows=3, extra=2, has_key=False) for name in ("bag", "the log"))
    assert last_lines(capsys, bag, keyed, applies=applies) == [
        "-- d.bag has no key, so single rows cannot be repaired. Copy the table again:",
        "pidts run 'a b.yaml' --resync d.bag",
    ]
    kept = dataclasses.replace(bag, filtered=True)
    said, command = last_lines(capsys, kept, keyed, log, applies=applies)
    assert said.startswith("-- d.bag, d.the log have no key, so single rows cannot be repaired. This also removes rows")
    assert command == "pidts run 'a b.yaml' --resync 'd.bag,d.the log'"
    assert "--resync" not in "\n".join(
        last_lines(capsys, keyed, dataclasses.replace(log, problem="x"), applies=applies)
    )
