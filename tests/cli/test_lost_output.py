"""A command that cannot print its result, or ends for an unknown reason, reports this on stderr."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import typer

from pidts.cli.app import run_command
from pidts.cli.errors import OutputConsole, as_unexpected

Output = pytest.CaptureFixture[str]


@pytest.mark.parametrize(("words", "code"), [(["version"], 1), (["run", "no such file.yaml", "--json"], 2)])
def test_a_result_that_cannot_be_written_is_an_error_on_stderr(words: list[str], code: int, capsys: Output) -> None:
    with Path("/dev/full").open("w") as full, redirect_stdout(full):
        assert run_command(words) == code
    said = capsys.readouterr().err
    assert "error [unwritable-output] the output of the command cannot be written: No space left on device" in said
    assert "unexpected" not in said
    assert "Traceback" not in said
    assert ("unreadable-file" in said) == (words[0] == "run"), "the error of the command itself is shown, too"


@pytest.mark.parametrize("size", [10, 100_000])
def test_the_size_of_the_output_makes_no_difference(size: int, capsys: Output) -> None:
    with Path("/dev/full").open("w") as full, redirect_stdout(full):
        assert run_command([], printing("x" * size)) == 1
    said = capsys.readouterr().err
    assert said.count("error [") == said.count("[unwritable-output]") == 1


def failing(error: BaseException) -> typer.Typer:
    commands = typer.Typer()

    @commands.command()
    def fail() -> None:
        sys.stdout.write("x" * 100_000)
        raise error

    return commands


@pytest.mark.parametrize("error", [EOFError("Ran out of input"), BrokenPipeError(errno.EPIPE, "Broken pipe")])
def test_an_error_that_typer_ends_without_a_message_is_shown(error: Exception, capsys: Output) -> None:
    assert run_command([], failing(error)) == 1
    assert f"[unexpected] {type(error).__name__}: " in capsys.readouterr().err


def test_a_reader_that_has_closed_the_output_gets_no_error(capsys: Output) -> None:
    for commands in (failing(KeyError("not reached")), printing("x"), drawing("x")):
        reading, writing = os.pipe()
        os.close(reading)
        with os.fdopen(writing, "w") as closed, redirect_stdout(closed):
            assert run_command([], commands) == 1
    assert capsys.readouterr().err == ""


def printing(text: str) -> typer.Typer:
    commands = typer.Typer()

    @commands.command()
    def write() -> None:
        sys.stdout.write(text)

    return commands


def drawing(text: str) -> typer.Typer:
    commands = typer.Typer()

    @commands.command()
    def draw() -> None:
        OutputConsole().print(text)

    return commands


def test_an_unexpected_error_is_shown_although_there_is_no_room_for_the_traceback(
    tmp_path: Path, capsys: Output
) -> None:
    with pytest.raises(KeyError) as raised:
        {}["lost"]
    shown = as_unexpected(raised.value, debug=False, folder=tmp_path / "missing")
    assert (shown.what, shown.todo) == ("KeyError: 'lost'", "This is a bug in pidts; the traceback is above")
    assert '{}["lost"]' in capsys.readouterr().err
