"""Every command in the documentation is run here unchanged, except for port numbers."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.forked_programs import LoadedPrograms

from pidts.sandbox import Server, start_mariadb, start_postgres
from pidts.sandbox.programs import mysql97

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
RunSql = Callable[..., list[tuple[Any, ...]]]


@dataclass(frozen=True)
class Block:
    language: str
    text: str

    @property
    def commands(self) -> list[str]:
        return [
            line.removeprefix("$ ").split(" #")[0].strip() for line in self.text.splitlines() if line.startswith("$ ")
        ]


def blocks(name: str) -> list[Block]:
    return [Block(*found) for found in BLOCK.findall((ROOT / name).read_text("utf-8"))]


def commands(name: str) -> list[str]:
    return [command for block in blocks(name) if block.language == "console" for command in block.commands]


def test_every_document_with_commands_has_its_test() -> None:
    pages = (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    documents = [str(page.relative_to(ROOT)) for page in pages]
    assert {name for name in documents if commands(name)} == {
        "README.md",
        "CONTRIBUTING.md",
        "docs/start/own-task.md",
        "docs/start/quick-start.md",
        "docs/start/to-hive.md",
        "docs/start/to-iceberg.md",
        "docs/operate/verify.md",
    }


def test_a_command_of_several_lines_can_be_pasted_with_them() -> None:
    """A reader copies such a block as a whole, so it has no prompt."""
    for page in (ROOT / "docs").rglob("*.md"):
        for block in blocks(str(page.relative_to(ROOT))):
            assert block.language != "console" or "<<" not in block.text, page


def run(command: str, timeout: float, cwd: Path = ROOT, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command],
        cwd=cwd,
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def test_the_readme() -> None:
    """Neither of the two commands is run here: CI runs `./test`, and tests/cli/test_demo.py tests what `./demo` does."""
    assert commands("README.md") == ["./demo", "./test"]


@pytest.mark.slow
def test_contributing() -> None:
    """The tests that the page names are only collected here, since they are part of this run."""
    listed = commands("CONTRIBUTING.md")
    tiers = re.findall(r"^(\w+)\)$", (ROOT / "test").read_text("utf-8"), re.MULTILINE)
    assert {"./test", *(f"./test {tier}" for tier in tiers)} == set(listed[:3])
    assert listed[3:] == ["./test tests/plan", ".venv/bin/pytest tests/plan"]
    tested = run(f"{listed[-1]} --collect-only -q", 120)
    assert tested.returncode == 0, tested.stdout


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_the_quick_start(tmp_path: Path, run_sql: RunSql) -> None:
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    with start_mariadb() as source, start_postgres() as target:
        fill(source, target, run_sql)
        exports: list[str] = []
        ran = []
        for block in blocks("docs/start/quick-start.md"):
            text = block.text.replace("3306", str(source.port)).replace("5432", str(target.port))
            if block.language == "sql":
                for statement in text.split(";\n"):
                    if statement.strip():
                        run_sql(source, statement)
            if block.language == "yaml":
                (tmp_path / "shop.yaml").write_text(text)
            if block.language != "console":
                continue
            for command in Block("console", text).commands:
                if command.startswith("export "):
                    exports.append(command)
                elif command != "./demo --seconds 30":
                    ran.append(command)
                    quick_start_command("; ".join([*exports, command]), tmp_path, source, target, run_sql)
        assert len(ran) == 5


@pytest.mark.usefixtures("mysql97")
def test_the_mysql_for_a_trial() -> None:
    """Docker is not run here. The server's own defaults, and the options that the page adds, are what a task needs."""
    (command,) = [block.text for block in blocks("docs/start/quick-start.md") if block.text.startswith("docker run")]
    words = shlex.split(command.replace("\\\n", " "))
    assert {"--publish", "127.0.0.1:3306:3306", "MYSQL_DATABASE=shop"} <= set(words)
    image = words.index("mysql:8.4")
    program = mysql97()
    shown = subprocess.run(
        [*program.command, *words[image + 1 :], "--verbose", "--help"],
        env={**os.environ, **program.environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    settings = dict(re.findall(r"^([\w-]+) +(\S.*)$", shown.stdout, re.MULTILINE))
    wanted = {"binlog-format": "ROW", "binlog-row-image": "FULL", "server-id": "1", "gtid-mode": "ON"}
    assert {name: settings[name] for name in wanted} == wanted
    assert settings["log-bin"] != "FALSE"


def fill(source: Server, target: Server, run_sql: RunSql) -> None:
    run_sql(source, "CREATE DATABASE shop")
    run_sql(source, "CREATE TABLE shop.orders (id INT PRIMARY KEY, state VARCHAR(10))")
    run_sql(source, "INSERT INTO shop.orders VALUES (1, 'new'), (2, 'new')")
    run_sql(target, "CREATE ROLE app LOGIN PASSWORD 'secret'")
    run_sql(target, "CREATE DATABASE shop OWNER app")


def quick_start_command(command: str, folder: Path, source: Server, target: Server, run_sql: RunSql) -> None:
    states = "SELECT id, state FROM shop.orders ORDER BY id"
    if command.endswith("pidts run shop.yaml"):
        run_sql(source, "UPDATE shop.orders SET state = 'paid' WHERE id = 2")
        process = subprocess.Popen(
            ["bash", "-c", f"exec 2>log; {command.replace('; .venv', '; exec .venv')}"], cwd=folder
        )
        try:
            deadline = time.monotonic() + 120
            while run_sql(target, states, database="shop") != [(1, "new"), (2, "paid")]:
                assert time.monotonic() < deadline, (folder / "log").read_text()
                assert process.poll() is None, (folder / "log").read_text()
                time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()
        return
    done = run(command, 200, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    if " plan " in command:
        assert "create  shop.orders" in done.stdout
        assert "1 table, " in done.stdout
    if "--until-synced" in command:
        assert run_sql(target, states, database="shop") == [(1, "new"), (2, "new")]
    if " events " in command:
        events = [event for event in map(json.loads, done.stdout.splitlines()) if event["op"] != "ddl"]
        assert [event["op"] for event in events] == ["insert", "insert", "update"]
        assert {event["table"] for event in events} == {"orders"}


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_first_task_on_the_servers_of_the_demo(tmp_path: Path) -> None:
    page = "docs/start/own-task.md"
    start, *steps = [
        step
        for block in blocks(page)
        for step in (
            re.split(r"(?m)^\$ ", block.text)[1:]
            if block.language == "console"
            else [block.text] * (block.language == "sh")
        )
    ]
    assert steps[0].startswith("cat > ")
    example = next(block.text for block in blocks(page) if block.text.startswith("export "))
    with (tmp_path / "log").open("wb") as log:
        demo = subprocess.Popen(["bash", "-c", f"exec {start}"], cwd=ROOT, stdin=subprocess.DEVNULL, stderr=log)
    try:
        deadline = time.monotonic() + 200
        while "Ctrl-C ends" not in (said := (tmp_path / "log").read_text()):
            assert demo.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.1)
        (printed,) = re.findall(r"export .*", said)
        assert re.sub(r"=\S+", "=", printed) == re.sub(r"=\S+", "=", example.strip())
        script = "\n".join(["set -ex", printed, *steps])
        done = run(script, 400)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "ready to run" in done.stdout
        assert re.search(r"^ +1 \| +77$", done.stdout, re.MULTILINE), done.stdout
    finally:
        demo.send_signal(signal.SIGINT)
        assert demo.wait(60) == 0


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "page", ["docs/start/to-iceberg.md", pytest.param("docs/start/to-hive.md", marks=pytest.mark.long)]
)
def test_the_page_on_a_warehouse(
    page: str,
    tmp_path: Path,
    mariadb: Server,
    run_sql: RunSql,
    programs: LoadedPrograms,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tests the task, its two commands and the program that reads; the demo has a test of its own."""
    monkeypatch.chdir(tmp_path)
    text = blocks(page)[0].text
    install, show, both = commands(page)
    assert (install, show) == ("./demo --target iceberg --seconds 30", "cat task.yaml")
    task = text.partition("$ cat task.yaml\n")[2].partition("$ ")[0]
    program = next(block.text for block in blocks(page) if block.language == "python")
    run_sql(mariadb, "DROP DATABASE IF EXISTS shop")  # Other tests may have left a database of this name.
    run_sql(mariadb, "CREATE DATABASE shop")
    run_sql(mariadb, "CREATE TABLE shop.orders (id INT PRIMARY KEY, state VARCHAR(10))")
    run_sql(mariadb, "INSERT INTO shop.orders VALUES (1, 'new'), (2, 'paid')")
    Path("password").write_text(mariadb.password)
    Path("password").chmod(0o600)
    task = task.replace("db.example", mariadb.host).replace("3306", str(mariadb.port))
    task = task.replace("user: pidts", f"user: {mariadb.user}").replace("/srv/warehouse", f"{tmp_path}/warehouse")
    Path("task.yaml").write_text(task)
    for command in f"{both} --until-synced".split(" && "):
        name, *words = command.split()
        assert name == ".venv/bin/pidts"
        done = programs.text(words, 200)
        assert done.returncode == 0, done.stdout + done.stderr
    Path("read.py").write_text(program.replace("/srv/warehouse", f"{tmp_path}/warehouse"))
    read = run(f"{sys.executable} read.py", 200, tmp_path)
    assert "paid" in read.stdout, read.stderr
