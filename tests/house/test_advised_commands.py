"""A command in a message is complete, so that an operator can paste it: it has the task file, and the place if needed.

The name of a command stands in backticks where a text only mentions the command. TASK, SOURCE, LSN and TABLE are
allowed: `pidts.model.advice` puts in what is known.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from pidts.model.advice import START_ANEW

PACKAGE = Path(__file__).parents[2] / "src" / "pidts"

OF_TASK = r"check|plan|run|status|verify|repair|grants|cutover|failover|start|pause|resume"
GROUPS = r"ddl|locks|relay|zones"
COMMAND = re.compile(rf"(?<!`)\bpidts (?:(?:{OF_TASK})|(?:{GROUPS})(?: [a-z-]+)?)(?![\w-])")
WITH_FILE = re.compile(rf"pidts (?:(?:{OF_TASK})|(?:{GROUPS}) [a-z-]+) (?:TASK|FILE|DIR|\{{|--help)")
DECIDES = re.compile(r"pidts ddl (?:skip|replace|retry|unlock|inject|revert) ")
WITH_PLACE = re.compile(r"pidts ddl [a-z]+ [^;]*?(?:--source .*?--at |--source .*?--table |--table |\{)")
COPY_AGAIN = re.compile(
    r"(?<!nothing to )\b[Cc]opy (?:(?:it|the tables?|this table|these tables|the rows) )?(?:again|once more)\b"
)
BARE_RESYNC = re.compile(r"(?<!pidts run TASK )--resync TABLE")
"""Only in a whole command does the table's name replace TABLE."""
WITH_COMMAND = re.compile(r"--resync|\{\}")
"""The command, or a value in the text: `RESYNC` of `pidts.model.advice`."""
WITHOUT_PROCEDURE = re.compile(r"\b(?:start|with) a new (?:task|full copy)\b")
"""Advice that a reader cannot follow. `START_ANEW` names the procedure in docs/reference/errors.md."""
NAMES = {"pidts zones return", "pidts ddl {} {}"}
"""Names of a record and of a lock on the target; people do not read them as advice."""
NO_TASKS = {("target/postgres/meta.py", "task")}
"""A value of the lock in `NAMES`."""


@cache
def _texts(code: str) -> tuple[tuple[int, str], ...]:
    """Returns the texts of a module with their lines; a value in a text is `{}`. Docstrings are left out."""
    return tuple(_found_texts(code))


def _found_texts(code: str) -> Iterator[tuple[int, str]]:
    tree = ast.parse(code)
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not {id(node)} & (bare | inside):
            yield node.lineno, node.value


def incomplete(text: str) -> list[str]:
    """Returns the commands in a text that lack their task file or their place."""
    found = []
    for match in COMMAND.finditer(text):
        rest = text[match.start() :]
        if not WITH_FILE.match(rest) or (DECIDES.match(rest) and not WITH_PLACE.match(rest)):
            found.append(rest[:60])
    return found + BARE_RESYNC.findall(text)


@pytest.mark.parametrize(
    "text",
    [
        "Then: pidts ddl skip",
        "See: pidts ddl list, pidts events",
        "(pidts locks)",
        "Then: pidts ddl retry TASK",
        "pidts ddl skip, then pidts run TASK",
        "pidts verify lists them",
        "Start it with --resync TABLE",
    ],
)
def test_an_incomplete_command_is_found(text: str) -> None:
    assert incomplete(text)


@pytest.mark.parametrize(
    "text",
    [
        "Then: pidts ddl skip TASK --source SOURCE --at LSN",
        "See: pidts ddl list TASK",
        "`pidts cutover` prints it",
        "Then: pidts ddl retry {} --table {} --yes",
        "pidts run {}{}",
    ],
)
def test_a_complete_command_is_not_found(text: str) -> None:
    assert not incomplete(text)


def test_each_advised_command_is_complete() -> None:
    """The command line and the service's pages are left out: they describe commands."""
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {command}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] not in {"cli", "web"}
        for line, text in _texts(path.read_text("utf-8"))
        if text not in NAMES
        for command in incomplete(text)
    ]
    assert found == []


UNQUOTED = re.compile(rf"pidts (?:(?:{OF_TASK})|(?:{GROUPS}) [a-z-]+|stop|list) $")
"""The beginning of a command, up to its task."""
QUOTED = re.compile(r"quote|shell_path")
"""A value that is one word of a shell: the call that quotes it, or a name that says so."""


def unquoted(code: str) -> Iterator[tuple[int, str]]:
    """Yields the values that name the task of a command and are not quoted for a shell, with their lines."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.JoinedStr):
            for before, value in pairwise(node.values):
                if (
                    isinstance(before, ast.Constant)
                    and isinstance(value, ast.FormattedValue)
                    and UNQUOTED.search(str(before.value))
                    and not QUOTED.search(ast.unparse(value.value))
                ):
                    yield node.lineno, ast.unparse(value.value)


def test_the_path_of_a_task_file_is_one_word_of_a_shell() -> None:
    """With a path such as `/srv/my tasks/shop.yaml`, the command must still name the file."""
    assert list(unquoted("f'See: pidts status {config.path}'"))
    assert not list(unquoted("f'See: pidts status {config.shell_path}'"))
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {value}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, value in unquoted(path.read_text("utf-8"))
        if (str(path.relative_to(PACKAGE)), value) not in NO_TASKS
    ]
    assert found == []


def without_command(text: str) -> bool:
    """Whether a text advises to copy tables again, and does not say how."""
    copies = COPY_AGAIN.search(text)
    return bool((copies and not WITH_COMMAND.search(text[copies.end() :])) or WITHOUT_PROCEDURE.search(text))


@pytest.mark.parametrize(
    "text",
    [
        "Correct the value on the source and copy the table again, or leave the table out",
        "Make the same change on the target, then start a new task for this table",
        "Otherwise start with a new full copy",
        "Run {}, then copy again",
    ],
)
def test_an_advice_to_copy_without_a_command_is_found(text: str) -> None:
    assert without_command(text)


@pytest.mark.parametrize(
    "text",
    [
        "Correct the value on the source, then copy the table again: {}",
        "Drop the table and copy it again: pidts run TASK --resync TABLE",
        "the task runs, and only a start can copy tables again",
        "start the task anew (docs/reference/errors.md#start-anew)",
    ],
)
def test_an_advice_to_copy_with_a_command_is_not_found(text: str) -> None:
    assert not without_command(text)


def test_each_advice_to_copy_again_has_its_command() -> None:
    """The command line and the service's pages are left out: they describe options."""
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {text[:80]}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] not in {"cli", "web"}
        for line, text in _texts(path.read_text("utf-8"))
        if without_command(text)
    ]
    assert found == []


def test_the_procedure_that_messages_name_is_on_the_page() -> None:
    page = (PACKAGE.parents[1] / START_ANEW.partition("(")[2].partition("#")[0]).read_text("utf-8")
    assert "\n### Start anew\n" in page
