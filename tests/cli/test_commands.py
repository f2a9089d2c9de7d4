"""A command that fails ends with the exit code and the message of its failure."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from pidts.cli import errors
from pidts.cli.app import app, run_command
from pidts.cli.backlog_text import moment
from pidts.cli.findings import show_findings
from pidts.model import DecodeError, Halted, PidtsError, PrecheckFailed, Transient, Where
from pidts.source.finding import Finding, demand
from pidts.target import MySqlTarget, PostgresTarget
from pidts.task.checks.source import _table_list, passed_if_ignored
from pidts.task.operate.progress import Progress, SourceProgress

BAD_TASK = "name: shop\ntask_mode: all\ntask-mode: all\n"

Output = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Usage: pidts"),
        (["rnu"], "Did you mean 'run'?"),
        (["run"], "See: pidts run --help"),
        (["run", "--frobnicate", "x.yaml"], "--frobnicate"),
        (["run", "absent.yaml"], "[unreadable-file] the task file cannot be read: No such file or directory"),
        (["check", "absent.yaml"], "where absent.yaml"),
        (["replicate", "absent.yaml"], "absent.yaml"),
        (["demo", "--seconds", "0"], "--seconds"),
        (["handle-error", "shop.yaml", "skip"], "Use: pidts ddl skip|replace|inject|revert TASK"),
        (["check-task", "absent.yaml"], "absent.yaml"),
        (["start-task", "absent.yaml"], "absent.yaml"),
    ],
)
def test_a_wrong_command_line_ends_with_2_and_says_why(arguments: list[str], said: str, capsys: Output) -> None:
    assert run_command(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err


def test_a_wrong_task_file_is_shown_with_its_line_and_the_way_out(tmp_path: Path, capsys: Output) -> None:
    path = tmp_path / "[red]task.yaml"
    path.write_text(BAD_TASK.replace("task-mode: all\n", ""))
    assert run_command(["check", str(path)]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error [missing-key] task-mode: this key has to be given",
        f"  where {path}:1",
        "  do    Is it 'task_mode' in line 2?",
    ]


def test_with_json_the_error_is_the_last_line_of_stdout(tmp_path: Path, capsys: Output) -> None:
    path = tmp_path / "task.yaml"
    path.write_text("name: shop\nname: shop\n")
    assert run_command(["run", str(path), "--json"]) == 2
    shown = capsys.readouterr()
    assert "[duplicate-key]" in shown.err
    assert json.loads(shown.out.splitlines()[-1]) == {
        "error": {
            "code": "duplicate-key",
            "what": "'name' was already given in line 1",
            "where": {"file": str(path), "line": 2},
            "todo": "Remove one of the two lines",
        }
    }


def test_a_usage_error_is_reported_to_machines_too(capsys: Output) -> None:
    assert run_command(["run", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "usage"


@pytest.mark.parametrize("word", ["version", "--version"])
def test_the_version_is_printed(word: str, capsys: Output) -> None:
    assert run_command([word]) == 0
    assert capsys.readouterr().out.startswith("pidts 0.")


def test_help_lists_every_command(capsys: Output) -> None:
    assert run_command(["--help"]) == 0
    listed = capsys.readouterr().out
    assert [
        name for name in ("run", "check", "events", "demo", "replicate", "version") if f"\n  {name} " not in listed
    ] == []


def test_an_error_has_code_what_where_and_what_to_do(capsys: Output) -> None:
    where = Where(source="shop-1", position="bin.000001:4", table="a.b")
    errors.show_error(Halted("bad-row", "a [bold]row[/bold]", where=where, todo="Look at it"), as_json=False)
    assert capsys.readouterr().err.splitlines() == [
        "error [bad-row] a [bold]row[/bold]",
        "  where source shop-1, at bin.000001:4, table a.b",
        "  do    Look at it",
    ]


def test_several_failed_checks_are_told_apart_and_their_fixes_begin_below_each_other(capsys: Output) -> None:
    items = (("binlog_expiry", ""), ("standby", "One"), ("table_list", "Two"))
    unfit = [Finding(item, ok=False, message="no", fix=fix) for item, fix in items]
    with pytest.raises(PrecheckFailed) as failed:
        demand(unfit)
    errors.show_error(failed.value, as_json=False)
    assert capsys.readouterr().err.splitlines() == [
        "error [precheck-failed] 3 checks failed. binlog_expiry: no; standby: no; table_list: no",
        "  do    standby: One",
        "        table_list: Two",
        "        Or ignore it at your own risk: ignore-checking-items: [binlog_expiry, standby, table_list]",
    ]


def test_a_command_in_the_text_of_an_error_names_the_task_file(capsys: Output) -> None:
    """The reasons for which no standby can take over are in the error's text, each with its own commands."""
    refused = Halted("no-standby", "no server can take over: b:1: if …: pidts failover TASK --to HOST:PORT --force")
    errors.remember_task(Path("/srv/my shop.yaml"))
    try:
        errors.show_error(refused, as_json=False)
    finally:
        errors.remember_task(None)
    assert "pidts failover '/srv/my shop.yaml' --to HOST:PORT --force" in capsys.readouterr().err


def test_a_name_with_control_characters_does_not_break_the_lines_of_a_failed_check(capsys: Output) -> None:
    found = Finding("table_list", ok=False, message="table a\n\x1b[31mb\tc has no key: 'ünïcode'")
    with pytest.raises(PrecheckFailed) as failed:
        demand([found])
    errors.show_error(failed.value, as_json=False)
    shown = capsys.readouterr().err.splitlines()
    assert shown[0] == "error [precheck-failed] table_list: table a\\n\\x1b[31mb\\tc has no key: 'ünïcode'"
    assert show_findings("t", [found], as_json=False) == 3
    assert "a\\n\\x1b[31mb\\tc has no key" in capsys.readouterr().out


@pytest.mark.parametrize(
    "item", ["dump_privilege", "replication_privilege", "target_privilege", "binlog_format", "auto_increment_ID"]
)
def test_no_advice_offers_to_ignore_a_check_without_which_the_run_would_fail_or_lose_changes(
    capsys: Output, item: str
) -> None:
    found = Finding(item, ok=False, message="no", fix="GRANT ...;")
    with pytest.raises(PrecheckFailed) as failed:
        demand([found])
    assert failed.value.todo == "GRANT ...;"
    assert show_findings("t", [found], as_json=False) == 3
    assert "ignore" not in capsys.readouterr().out
    assert passed_if_ignored(found, (item,)).ok, "whoever knows better may still write it"


def test_no_advice_offers_to_ignore_a_check_that_fails_because_of_another_one(capsys: Output) -> None:
    privilege = Finding("dump_privilege", ok=False, message="SELECT is missing", fix="GRANT ...;")
    unseen = _table_list({}, 0, unseen=True, resumed=False)
    assert show_findings("t", [privilege, unseen], as_json=False) == 3
    assert "ignore" not in capsys.readouterr().out


def test_a_check_names_the_checks_that_have_failed_and_are_ignored(capsys: Output) -> None:
    ignored = ("binlog_expiry", "standby", "version")
    found = [Finding(item, ok=item == "version", message="said") for item in ignored]
    found = [passed_if_ignored(one, ignored) for one in found]
    assert show_findings("t", found, as_json=False) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "note    binlog_expiry  ignored: said"
    assert shown[-2:] == [
        "binlog_expiry, standby have failed and are ignored (ignore-checking-items in the task file)",
        "t: ready to run",
    ]
    assert show_findings("t", found, as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["ignored"] == ["binlog_expiry", "standby"]


def test_the_level_of_a_finding_is_the_same_word_in_text_and_json(capsys: Output) -> None:
    fine = Finding("a", ok=True, message="said")
    hint, note = replace(fine, fix="GRANT ...;"), replace(fine, is_note=True, fix="GRANT ...;")
    ignored = passed_if_ignored(replace(fine, ok=False), ("a",))
    found = [fine, hint, note, ignored, replace(fine, ok=False)]
    show_findings("t", found, as_json=True)
    levels = [one["level"] for one in json.loads(capsys.readouterr().out)["findings"]]
    assert levels == ["ok", "hint", "note", "note", "failed"]
    show_findings("t", found, as_json=False)
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines() if "  a  " in line] == levels


def test_the_last_line_of_a_check_names_the_checks_with_a_hint(capsys: Output) -> None:
    fine = Finding("a", ok=True, message="said")
    hint = Finding("rules", ok=True, message="route x matches no table", fix="Did you mean shop.orders?")
    assert show_findings("t", [fine, hint, hint, replace(fine, item="gtid", fix="do it")], as_json=False) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "t: ready to run, with 3 hints (rules, gtid)"
    assert show_findings("t", [hint, replace(fine, ok=False)], as_json=False) == 3
    assert capsys.readouterr().out.splitlines()[-1] == "t: 1 of 2 checks failed"


def test_one_failed_check_is_named_once() -> None:
    with pytest.raises(PrecheckFailed, match=r"\] a: no\. Mend it"):
        demand(
            [Finding("relay_directory", ok=True, message="fine"), Finding("a", ok=False, message="no", fix="Mend it")],
            ["b"],
        )


@pytest.mark.parametrize("as_json", [False, True])
def test_the_findings_of_a_check_name_the_task_file(capsys: Output, *, as_json: bool) -> None:
    found = Finding("held_back", ok=False, message="see: pidts ddl list TASK", fix="pidts grants TASK --only target")
    errors.remember_task(Path("a b.yaml"))
    try:
        assert show_findings("t", [found], as_json=as_json) == 3
    finally:
        errors.remember_task(None)
    shown = capsys.readouterr().out
    assert "see: pidts ddl list 'a b.yaml'" in shown
    assert "pidts grants 'a b.yaml' --only target" in shown


def test_a_target_that_does_not_answer_has_advice() -> None:
    for target in (PostgresTarget("127.0.0.1", 9, "u", "x", "d"), MySqlTarget("127.0.0.1", 9, "u", "x")):
        with pytest.raises(Transient, match="target-unreachable") as absent:
            target.connect()
        assert "Are host and port under target-database right?" in absent.value.todo


@pytest.mark.parametrize(("seconds", "age"), [(2, "2 s"), (-1, "0 s"), (150, "2 min"), (7500, "2 h 5 min")])
def test_a_time_has_its_age(seconds: float, age: str) -> None:
    assert moment(time.time() - seconds).endswith(f" UTC ({age} ago)")


def test_an_error_without_advice_of_its_own_has_that_of_its_kind(capsys: Output) -> None:
    for kind, words in ((Transient, "run the command again"), (DecodeError, "docs/reference/errors.md")):
        errors.show_error(kind("x", "y"), as_json=True)
        shown = capsys.readouterr()
        assert words in shown.err
        assert words in json.loads(shown.out)["error"]["todo"]


def test_an_advice_names_the_task_file_of_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    def refuse(_: Path) -> None:
        raise Halted("x", "y", todo="Look: pidts status TASK. Then: pidts zones move TASK ROWS, or write a TASK")

    file = tmp_path / "a b.yaml"
    file.write_text("name: t\n")
    monkeypatch.setattr("pidts.task.config.task_file.load_parts", refuse)
    run_command(["plan", str(file)])
    assert f"Look: pidts status '{file}'. Then: pidts zones move '{file}' ROWS, or write a TASK" in (
        capsys.readouterr().err
    )
    errors.show_error(Halted("x", "y", todo="pidts status TASK"), as_json=False)
    run_command(["dmctl"])
    errors.show_error(Halted("x", "y", todo="pidts check TASK"), as_json=False)
    assert "pidts check TASK" in capsys.readouterr().err, "another command does not know it"


def failing_commands(error: Exception) -> typer.Typer:
    """Returns commands of which `check` fails with this error."""
    commands = typer.Typer()

    @commands.command()
    def check(*, debug: bool = False) -> None:
        del debug
        raise error

    @commands.command()
    def other() -> None:
        """Is here so that a command line has to name its command."""

    return commands


@pytest.fixture
def some_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes a file `t.yaml` into the working directory, since commands first check whether it is a file of zones."""
    (tmp_path / "t.yaml").write_text("name: t\n")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("kind", "code"), [(PidtsError, 1), (Halted, 5)])
def test_an_errors_kind_is_the_exit_code(kind: type[PidtsError], code: int, capsys: Output) -> None:
    assert run_command(["check"], failing_commands(kind("x", "y"))) == code
    assert "error [x] y" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("mode", "option", "stage", "code"),
    [
        ("all", [], "synced", 0),
        ("all", [], "stopped", 0),
        ("all", [], "halted", 5),
        ("all", ["--until-synced"], "synced", 0),
        ("all", ["--until-synced"], "stopped", 1),
        ("all", ["--until-synced"], "halted", 5),
        ("full", [], "synced", 0),
        ("full", [], "stopped", 1),
        ("full", [], "paused", 1),
        ("full", [], "halted", 5),
    ],
)
@pytest.mark.usefixtures("some_task")
def test_a_run_that_has_not_reached_its_end_is_no_success(
    mode: str, option: list[str], stage: Any, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = SimpleNamespace(is_between_zones=False, name="t", mode=mode, notes=())
    monkeypatch.setattr("pidts.task.config.task_file.load_parts", lambda _: (part,))
    monkeypatch.setattr(
        "pidts.task.run.task_run.run_task",
        lambda *_, **__: Progress(task="t", sources=(SourceProgress(source="s", stage=stage),)),
    )
    assert run_command(["run", "t.yaml", *option]) == code


def test_an_internal_error_is_one_line_and_a_traceback_in_a_file(capsys: Output) -> None:
    assert run_command(["check"], failing_commands(ZeroDivisionError("over\nthere"))) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first == "error [unexpected] ZeroDivisionError: over"
    log = Path(second.rpartition(" ")[2])
    assert "ZeroDivisionError" in log.read_text()
    log.unlink()


def test_with_debug_the_traceback_is_shown(capsys: Output) -> None:
    assert run_command(["check", "--debug"], failing_commands(ZeroDivisionError("x"))) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["--help"], ["events", "--help"], ["events", "absent.000001"], ["check", "absent.yaml"]]
)
def test_no_command_loads_spark_without_need(arguments: list[str]) -> None:
    program = (
        "import sys; from pidts.cli.app import hide_modules, run_command; hide_modules(); "
        f"run_command({arguments!r}); "
        "print(sorted({'pandas', 'pyspark', 'psycopg'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "[]"


WORKER = """
import sys, time
from pidts.cli.signals import run_until_stopped

def work(stop):
    print("ready", flush=True)
    stop.wait(30)
    print("stopping", flush=True)
    time.sleep({linger})
    return 7

sys.exit(run_until_stopped(work))
"""


@pytest.mark.parametrize(
    ("sent", "linger", "code"),
    [
        ([signal.SIGINT], 0, 7),
        ([signal.SIGTERM], 0, 7),
        ([signal.SIGINT, signal.SIGINT], 120, 1),
        ([signal.SIGTERM, signal.SIGINT], 120, 1),
    ],
)
def test_the_first_signal_asks_and_a_second_ctrl_c_does_not_wait(
    sent: list[signal.Signals], linger: int, code: int
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WORKER.format(linger=linger)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        began = time.monotonic()
        for expected, number in zip(("ready", "stopping"), sent, strict=False):
            assert process.stdout.readline().strip() == expected
            os.kill(process.pid, number)
        assert process.wait(60) == code
    assert time.monotonic() - began < 100


def test_an_error_of_the_work_is_raised() -> None:
    from pidts.cli.signals import run_until_stopped

    with pytest.raises(ZeroDivisionError):
        run_until_stopped(lambda _: 1 // 0)


def test_every_command_says_what_it_does() -> None:
    assert [
        command.name for command in app.registered_commands if not (command.callback and command.callback.__doc__)
    ] == []
