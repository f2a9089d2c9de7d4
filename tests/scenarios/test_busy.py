"""The core scenarios succeed, although more slowly, on a machine with far more work than it can do."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.busy import LONGEST, busy_machine
from tests.forked_programs import LoadedPrograms

from .conftest import Carried, scenarios
from .shared_task import SharedTask
from .test_scenarios import demand_expected

CORE = ("basic", "types", "ddl", "routes")
"""Together they have a copy, changes of the log, all types, schema changes, and other names. The run is killed and
started once more.
"""


@pytest.mark.spark
@pytest.mark.server
@pytest.mark.long
@pytest.mark.timeout(2 * LONGEST)
def test_the_core_scenarios_are_carried_at_load_30(tmp_path: Path, programs: LoadedPrograms) -> None:
    core = [scenario for scenario in scenarios() if scenario.name in CORE]
    assert len(core) == len(CORE)
    with ExitStack() as servers:
        task = SharedTask(core, "postgres", tmp_path, servers, programs, patience=LONGEST)
        load = servers.enter_context(busy_machine())
        try:
            done = Carried(*task.carry())
            sys.stderr.write(f"load {load:.0f}\n")
            for scenario in core:
                demand_expected(scenario, "postgres", done)
        except BaseException:
            sys.stderr.write(f"load {load:.0f}\n{task.logs()}")
            raise
        finally:
            task.end()
