"""`pidts zones return` changes nothing while a task from or to the zone runs, on this machine or on another one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from tempfile import TemporaryFile

import pytest
from tests.forked_programs import LoadedPrograms
from tests.task.zones.returning_pair import Pair

from pidts.cli.app import run_command
from pidts.task.config.task_file import load_task
from pidts.task.operate.presence import show_presence
from pidts.task.operate.sole_run import running_process


@pytest.mark.timeout(600)
def test_nothing_changes_while_a_task_of_the_zone_runs(
    pair: Pair, programs: LoadedPrograms, capfd: pytest.CaptureFixture[str]
) -> None:
    config = load_task(pair.file.with_name("zones.yaml@b-a"))
    pair.write_file(joins=True)
    words = ["zones", "return", str(pair.file), "b", "--yes"]

    def is_refused(words: Sequence[str]) -> bool:
        before = pair.records()
        capfd.readouterr()
        assert run_command(words) == 3
        said = capfd.readouterr().err
        assert "zone-tasks-run" in said
        assert pair.records() == before
        return f"tasks from or to zone b run: {config.name}. " in said

    with TemporaryFile() as output:
        run = programs.start(["run", f"{pair.file}@b-a"], output, output)
        try:
            deadline = time.monotonic() + 60
            while not running_process(config):
                assert time.monotonic() < deadline
                time.sleep(0.1)
            assert is_refused(words)
            assert run_command(words[:-1]) == 0
            assert f"tasks that run now: {config.name}" in capfd.readouterr().out
        finally:
            run.terminate()
            run.wait(120)
    with closing(config.target.server.connect()) as elsewhere:
        show_presence(elsewhere, config.name, config.source.source_id)
        assert is_refused(words)
    assert run_command(words) == 0
    pair.write_file(joins=False)
    pair.demand_returned()
