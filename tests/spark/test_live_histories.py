"""Random tables are copied and changed at the same time, whatever their keys are, and end as on the source.

The tests vary the row images, the number of workers, the size of the chunks, whether tables are merged, and when the
task is stopped or killed. The log has XA transactions, compressed transactions and differences of JSON documents.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from tests.examples import seeds
from tests.running import Progress

from pidts.sandbox import Server

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
@pytest.mark.timeout(600)
@pytest.mark.parametrize("is_merged", [False, pytest.param(True, marks=pytest.mark.long)], ids=["alone", "merged"])
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_any_history_during_a_copy(
    request: pytest.FixtureRequest,
    make_task: Callable[..., Task],
    target_server: Callable[[str], Server],
    pair: tuple[str, str],
    is_merged: bool,
    open_session: Callable[..., Any],
) -> None:
    source, target = request.getfixturevalue(pair[0]), target_server(pair[1])
    session = open_session(target)
    for seed in seeds(4):
        chance = random.Random(f"{seed} {pair} {is_merged}")
        schema = f"live_{chance.randrange(10**9)}"
        workers = chance.choice([1, 1, 2, 4])
        # With MINIMAL images, an update that gives its row to another worker halts the table.
        images = chance.choice(IMAGES) if workers == 1 else IMAGES[0]
        history = LiveHistory(source, schema, chance, 3 if is_merged else 8, images, is_merged=is_merged)
        routes, progress = history.routes(), Progress(session, task=schema)
        task = make_task(
            source,
            target,
            [schema],
            name=schema,
            workers=workers,
            pidts={"relay": f"relay_{schema}", "chunk-rows": chance.choice([10, 50])},
            instance={"route-rules": list(routes)},
            routes=routes,
            **({"is-sharding": True} if is_merged else {}),
        )
        with history.written():
            for left in reversed(range(chance.randrange(1, 4))):
                run = task.start()
                run.wait_until(lambda progress=progress: progress.states() != [], "the task has begun")
                history.has_begun = True
                if not left and not is_merged:  # The copy of a merged table may wait for a schema change.
                    run.wait_until(progress.is_copied, "all tables are copied")
                with suppress(subprocess.TimeoutExpired):
                    run.process.wait(chance.uniform(0, 4))
                assert run.process.poll() is None, task.logs()
                if chance.random() < 0.7:
                    run.kill()
                else:
                    run.stop()
        task.sync()
        assert history.differences(target) == [], seed
        history.close()
