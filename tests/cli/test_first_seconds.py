"""A run that is stopped while it still loads its modules ends at once, and says so. The first start says why it waits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.running import PIDTS

TASK = """
name: t
task-mode: all
target-database: {type: mysql, host: 127.0.0.1, port: 1, user: u}
mysql-instances: [{source-id: s, from: {host: 127.0.0.1, port: 1, user: u}}]
"""


@pytest.mark.parametrize(
    ("number", "options", "mode", "code"),
    [
        (signal.SIGTERM, [], "all", 0),
        (signal.SIGINT, [], "all", 0),
        (signal.SIGTERM, ["--until-synced"], "all", 1),
        (signal.SIGTERM, [], "full", 1),
    ],
)
def test_a_signal_ends_a_run_while_code_is_compiled(
    tmp_path: Path, number: signal.Signals, options: list[str], mode: str, code: int
) -> None:
    task = tmp_path / "t.yaml"
    task.write_text(TASK.replace("task-mode: all", f"task-mode: {mode}"))
    with subprocess.Popen(
        [*PIDTS, "run", str(task), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "compiled"), "PIDTS_KERNEL": "compiled"},
    ) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if line.startswith("compiling code for this machine: only the first runs do this"):
                break
        process.send_signal(number)
        said, error = process.communicate(timeout=60)
    assert (process.returncode, said) == (code, ""), lines
    assert error.splitlines()[-1] == "t: stopped"


BEFORE_LOADING = """
import os, signal, sys

class Loading:
    def find_spec(self, name, *_):
        if name == "pidts.cli.app":
            os.kill(os.getpid(), int(sys.argv.pop()))

sys.meta_path.insert(0, Loading())
from pidts.cli.program import main
main()
"""


IN_MODE = """\
name: shop
task-mode: %s
target-database: {type: postgresql, host: 127.0.0.1, port: 1, database: shop, user: u}
mysql-instances: [{source-id: a, from: {host: 127.0.0.1, port: 1, user: u}, block-allow-list: all}]
block-allow-list: {all: {do-dbs: [shop]}}
"""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["run", "all.yaml"], 0),
        (["--log-level", "debug", "apply", "all.yaml"], 0),
        (["run", "all.yaml", "--until-synced"], 1),
        *((command.split(), 1) for command in ("run full.yaml", "start-task full.yaml", "resume-task full.yaml")),
        (["apply", "full.yaml"], 1),
        (["run", "none.yaml"], 2),
        (["status", "run"], -signal.SIGTERM),
    ],
)
def test_a_signal_ends_a_run_before_the_commands_are_loaded(words: list[str], code: int, tmp_path: Path) -> None:
    """A run that copies once has not done its work, as if the signal came later."""
    for mode in ("all", "full"):
        (tmp_path / f"{mode}.yaml").write_text(IN_MODE % mode)
    ended = subprocess.run(
        [sys.executable, "-c", BEFORE_LOADING, *words, str(int(signal.SIGTERM))],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )
    assert (ended.returncode, ended.stdout) == (code, ""), ended.stderr
    assert code == 2 or ended.stderr.strip() == ("" if code < 0 else "shop: stopped")


DURING = """
import os, signal, sys

class Loading:
    module = sys.argv.pop()

    def find_spec(self, name, *_):
        if name == self.module:
            self.module = ""
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Loading())
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores SIGINT
from pidts.cli.program import main
main()
"""


@pytest.mark.parametrize("module", ["pidts.cli.app", "pidts.task.config.task_file"])
@pytest.mark.parametrize("command", ["status", "locks list"])
def test_ctrl_c_ends_each_command_with_one_line_while_it_loads(command: str, module: str, tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(IN_MODE % "all")
    ended = subprocess.run(
        [sys.executable, "-c", DURING, *command.split(), "all.yaml", module],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    *waits, last = filter(None, ended.stderr.splitlines())
    assert last == "stopped"
    assert all(line.startswith("working for ") for line in waits), "a busy machine says after 3 s what it does"


@pytest.mark.parametrize("module", ["pidts.cli.app", "pidts.task.config.task_file", "pidts.verify"])
def test_a_comparison_that_is_stopped_while_it_loads_prints_its_object(module: str, tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(IN_MODE % "all")
    ended = subprocess.run(
        [sys.executable, "-c", DURING, "verify", "all.yaml", "--json", module],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )
    assert ended.returncode == 1, ended.stderr
    found = json.loads(ended.stdout)
    assert (found["stage"], found["equal"], found["tables"]) == ("stopped", False, [])
