"""`pidts --help` lists the commands in the order in which a new user needs them, and cuts no line off."""

from __future__ import annotations

from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from pidts.cli.app import app

COMMAND: Any = typer.main.get_command(app)


def groups(command: Any = COMMAND, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Returns the paths of all groups of commands; the path of `pidts` itself is empty."""
    found = getattr(command, "commands", None)
    if found is None:
        return []
    return [path, *(deeper for name, one in found.items() for deeper in groups(one, (*path, name)))]


@pytest.mark.parametrize("path", groups(), ids=" ".join)
def test_no_line_of_a_list_of_commands_is_cut_off(path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = CliRunner().invoke(app, [*path, "--help"])
    assert shown.exit_code == 0
    listed = shown.output.partition("Commands:\n")[2].splitlines()
    assert listed
    assert [line for line in listed if line.endswith("...") or not line[2:3].strip()] == []


def test_the_commands_are_in_the_order_of_a_journey() -> None:
    names = [name for name in COMMAND.list_commands(None) if not COMMAND.commands[name].hidden]
    assert names[:6] == ["init", "grants", "check", "plan", "run", "status"]
    assert names[-3:] == ["schema", "demo", "version"]


def test_no_command_is_missing_in_the_order() -> None:
    from pidts.cli.app import _JOURNEY

    assert {name for name, one in COMMAND.commands.items() if not one.hidden} == {*_JOURNEY}
