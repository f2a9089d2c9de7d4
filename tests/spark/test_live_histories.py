"""Random tables are copied and changed at the same time, whatever their keys are, and end as on the source.

The tests vary the row images, the number of workers, the size of the chunks, whether tables are merged, and when the
task is stopped or killed. The log has XA transactions, compressed transactions and differences of JSON documents.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.examples import seeds

from pidts.sandbox import Server

from tests.running import Progress

from .commands import Task
from .live_histories import IMAGES, LiveHistory

PAIRS = [
    ("mariadb", "postgres"),
    pytest.param(("mysql97", "mariadb"), marks=pytest.mark.long),
    pytest.param(("mysql97", "postgres"), marks=pytest.mark.long),
    pytest.param(("mariadb", "mysql97"), marks=pytest.mark.long),
    pytest.param(("mysql56", "mariadb"), marks=pytest.mark.long),
    pytest.param(("mysql97", "mysql97"), marks=pytest.mark.long),
]


@pytest.mark.spark
@pytest.mark.timeout(0)
@pytest.mark.parametrize("is_merged", [False, True], ids=["", "merged"])
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_any_history_during_a_copy(
    request: pytest.FixtureRequest,
    make_task: Callable[..., Task],
    target_server: Callable[[str], Server],
    pair: tuple[str, str],
    is_merged: bool,
    open_session: Callable[..., Any],
    tmp_path: Path,
) -> None:
    source, target = request.getfixturevalue(pair[0]), target_server(pair[1])
    session = open_session(target)
    for seed in seeds(4):
        chance = random.Random(f"{seed} {pair} {is_merged}")
        schema = f"live_{chance.randrange(10**9)}"
        workers = chance.choice([1, 1, 2, 4])
        # With MINIMAL images, an update that gives its row to another worker halts the table.
        images = chance.choice(IMAGES) if workers == 1 else IMAGES[0]
        print("seed", seed, workers, images, is_merged, flush=True)
        history = LiveHistory(source, schema, chance, 4 if is_merged else 12, images, is_merged=is_merged)
        routes, progress = history.routes(), Progress(session, task=schema)
        task = make_task(
            source,
            target,
            [schema],
            name=schema,
            workers=workers,
            pidts={"relay": f"relay_{schema}", "chunk-rows": chance.choice([3, 20, 100])},
            instance={"route-rules": list(routes)},
            routes=routes,
            **({"is-sharding": True} if is_merged else {}),
        )
        try:
            with history.written():
                for _ in range(chance.randrange(1, 4)):
                    run = task.start()
                    # Merged tables must have one structure when the task begins.
                    run.wait_until(lambda: progress.states() != [], "the task has begun")
                    history.alters = is_merged
                    with suppress(subprocess.TimeoutExpired):
                        run.process.wait(chance.uniform(2, 8))
                    assert run.process.poll() is None, task.logs()
                    _ = run.kill() if chance.random() < 0.7 else run.stop()
            print("   ", len(history.statements), flush=True)
            task.sync()
            assert history.differences(target) == []
        except BaseException:
            folder = Path(f"/tmp/h17/fail-{'-'.join(pair)}-{seed.replace(' ', '_')}")
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copytree(tmp_path, folder / "task", dirs_exist_ok=True)
            (folder / "statements.sql").write_text("\n".join([d.statement(n) for n, d in history.tables.items()] + history.statements))
            shutil.copytree(source.directory / "binlog", folder / "binlog", dirs_exist_ok=True)
            raise
        history.close()
