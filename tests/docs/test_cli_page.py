"""docs/reference/cli.md names every command and every option of the program, and no others."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from pidts.cli.app import app
from pidts.task.operate.progress import Progress, SourceProgress

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text("utf-8")
SECTION = re.compile(r"^### `pidts ([^`]*)`\n(.*?)(?=^##|\Z)", re.DOTALL | re.MULTILINE)
ROW = re.compile(r"^\| (`-.*?) \| ", re.MULTILINE)
NAME = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
SHARED = "Options of `skip`, `replace`, `inject`, `revert`, `retry` and `unlock`:"
ORDERS = ("skip", "replace", "inject", "revert", "retry", "unlock")


def command_line() -> Any:
    return get_command(app)


@cache
def of_the_program(*, hidden: bool) -> dict[str, set[str]]:
    """Returns the options of each command that is not a group of commands."""
    found: dict[str, set[str]] = {}

    def walk(command: Any, words: tuple[str, ...], *, is_hidden: bool) -> None:
        is_hidden = is_hidden or bool(command.hidden)
        below = getattr(command, "commands", {})
        if not below and is_hidden == hidden:
            options = [one for one in command.params if one.param_type_name == "option" and "--help" not in one.opts]
            found[" ".join(words)] = {name for one in options for name in one.opts}
        for name, one in below.items():
            walk(one, (*words, name), is_hidden=is_hidden)

    walk(command_line(), (), is_hidden=False)
    return found


def of_the_page() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for title, text in SECTION.findall(PAGE):
        words = [word for word in title.split() if re.fullmatch(r"[a-z-]+", word)]
        found[" ".join(words)] = options(text)
    shared = options(PAGE.partition(SHARED)[2].partition("\n## ")[0])
    return found | {f"ddl {order}": shared for order in ORDERS}


def options(text: str) -> set[str]:
    """Returns the names in the first column of a table."""
    return {name for cell in ROW.findall(text) for name in NAME.findall(cell)}


def test_the_page_has_every_command_and_no_other() -> None:
    assert sorted(of_the_page()) == sorted(of_the_program(hidden=False))


@pytest.mark.parametrize("command", of_the_program(hidden=False))
def test_the_page_has_every_option_of_a_command_and_no_other(command: str) -> None:
    assert of_the_page()[command] == of_the_program(hidden=False)[command]


def test_the_page_has_the_spellings_of_dmctl() -> None:
    spellings = set(re.findall(r"`pidts ([a-z -]+)`", PAGE.partition("## dmctl's spellings")[2]))
    assert set(of_the_program(hidden=True)) <= spellings


def test_the_command_line_has_as_many_arguments_as_the_page_says() -> None:
    """`TASK|DIR` counts as one argument, and so does `SQL…`."""
    titles = {" ".join(re.findall(r"(?<!\S)[a-z-]+(?!\S)", title)): title for title, _ in SECTION.findall(PAGE)}
    for name, title in titles.items():
        command = command_line()
        for word in name.split():
            command = command.commands[word]
        arguments = [one for one in command.params if one.param_type_name == "argument"]
        assert len(title.split()) - len(name.split()) == len(arguments), title


def test_the_page_has_every_key_of_the_object_that_a_run_prints_and_no_other() -> None:
    text = PAGE.partition("#### The object of")[2].partition("\n###")[0]
    rows = [line.split(" | ", 1) for line in text.splitlines() if line.startswith("| `")]
    printed = Progress(task="t", sources=(SourceProgress(source="s", stage="sync"),)).to_json()
    assert {key for keys, _ in rows for key in re.findall(r"`(\w+)`", keys)} == printed.keys()
    ((_, of_source),) = [row for row in rows if row[0] == "| `sources`"]
    assert set(re.findall(r"`(\w+)`", of_source)) == printed["sources"][0].keys()
