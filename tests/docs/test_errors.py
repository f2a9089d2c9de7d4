"""docs/reference/errors.md has one entry for every error code and every finding in the source code, and no others."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from pidts.cli import findings
from pidts.model import errors

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "pidts"
PAGE = (ROOT / "docs" / "reference" / "errors.md").read_text("utf-8")
FINDINGS = "Findings"
"""The heading above the table of the checks of `pidts check`. All other entries are error codes."""
ENTRY = re.compile(r"^\| `([^`]+)` \|.*\| ([^|]*) \|$", re.MULTILINE)
EXIT = re.compile(r"^\| (\d+) \|", re.MULTILINE)
CALLS = """
NAMED = "by-constant"
class Late(Transient): ...
class Section:
    def error(self, key: str, code: str) -> ConfigError:
        return ConfigError(code, "what")
def refuse(table: Table, code: str) -> Halted | None:
    raise Halted(code, "what")
def raised(error, section, log, which):
    Halted("plain", "what")
    errors.DecodeError("by-module", "what")
    Late("late", "what")
    Fenced(NAMED, "what")
    PidtsError("either" if which else "or", "what")
    ConfigError(code="by-keyword", what="what")
    section.error("key", "by-method")
    refuse(table, code="by-function")
    Halted(error.code, error.what)
    Halted(error["code"], error["what"])
    log.error("no code at all", code=error.code)
    raise ValueError("not-ours")
"""


@cache
def modules() -> tuple[ast.Module, ...]:
    return tuple(ast.parse(path.read_text("utf-8"), str(path)) for path in sorted(SOURCE.rglob("*.py")))


@cache
def nodes(trees: tuple[ast.Module, ...]) -> tuple[ast.AST, ...]:
    return tuple(node for tree in trees for node in ast.walk(tree))


def last_name(node: ast.AST) -> str:
    """Returns `Halted` for `Halted` and for `errors.Halted`; empty if the expression has no name."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def error_classes(trees: tuple[ast.Module, ...]) -> dict[str, type[errors.PidtsError]]:
    """For each error class of PiDTS, returns the class of `pidts.model.errors` from which it is derived."""
    known = {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.PidtsError)
    }
    classes = [node for node in nodes(trees) if isinstance(node, ast.ClassDef)]
    while True:
        new = {
            node.name: known[base]
            for node in classes
            for base in map(last_name, node.bases)
            if node.name not in known and base in known
        }
        if not new:
            return known
        known |= new


def builders(
    trees: tuple[ast.Module, ...], classes: dict[str, type[errors.PidtsError]]
) -> dict[str, tuple[int, type[errors.PidtsError]]]:
    """Returns the functions that make an error from a code: the index of the code among the arguments, and the error's
    class.
    """
    found = {}
    for node in nodes(trees):
        if not isinstance(node, ast.FunctionDef) or node.returns is None:
            continue
        parameters = [argument.arg for argument in node.args.args if argument.arg not in {"self", "cls"}]
        kinds = [classes[name] for name in map(last_name, ast.walk(node.returns)) if name in classes]
        if "code" in parameters and kinds:
            found[node.name] = (parameters.index("code"), kinds[0])
    return found


def literals(node: ast.AST, constants: dict[str, str]) -> set[str]:
    """Returns the codes that an expression may result in; empty if it passes on the code of another error."""
    match node:
        case ast.Constant(value=str(code)):
            return {code}
        case ast.IfExp(body=body, orelse=orelse):
            return literals(body, constants) | literals(orelse, constants)
        case ast.Name(id=name) if name in constants:
            return {constants[name]}
        case ast.Name(id="code") | ast.Attribute(attr="code") | ast.Subscript(slice=ast.Constant(value="code")):
            return set()
    pytest.fail(f"line {node.lineno}: {ast.unparse(node)} is no code that can be read from the source")


@cache
def raised(trees: tuple[ast.Module, ...]) -> dict[str, set[type[errors.PidtsError]]]:
    """Returns every error code in the source code, with the classes of the errors that have it."""
    classes = error_classes(trees)
    places = {**builders(trees, classes), **{name: (0, kind) for name, kind in classes.items()}}
    constants = {
        target.id: node.value.value
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    codes: dict[str, set[type[errors.PidtsError]]] = {}
    for call in nodes(trees):
        if not isinstance(call, ast.Call) or last_name(call.func) not in places:
            continue
        place, kind = places[last_name(call.func)]
        given = [*call.args[place : place + 1], *(word.value for word in call.keywords if word.arg == "code")]
        for code in given and literals(given[0], constants):
            codes.setdefault(code, set()).add(kind)
    return codes


def looked_at() -> set[str]:
    """Returns the items of `pidts check`: the functions in `_CHECKS`, and what these and the task's own checks name."""
    tree = ast.parse((SOURCE / "source" / "prechecks.py").read_text("utf-8"))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    checks = next(
        node.value for node in tree.body if isinstance(node, ast.AnnAssign) and last_name(node.target) == "_CHECKS"
    )
    names = [last_name(node) for node in ast.walk(checks) if last_name(node) in functions]
    assert names
    task = [ast.parse(path.read_text("utf-8")) for path in sorted((SOURCE / "task" / "checks").glob("*.py"))]
    calls = [
        node for part in (*task, *map(functions.get, names)) for node in ast.walk(part) if isinstance(node, ast.Call)
    ]
    items = {
        call.args[0].value
        for call in calls
        if last_name(call.func) == "Finding" and isinstance(call.args[0], ast.Constant)
    }
    return items | {name.removeprefix("_") for name in names}


def documented() -> tuple[dict[str, str], list[str]]:
    """Returns the page's error codes, each with the last column of its row, and the checks under the heading
    `FINDINGS`.
    """
    codes, items = {}, []
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE):
        for name, last in ENTRY.findall(section):
            if section.startswith(FINDINGS):
                items.append(name)
            else:
                codes[name] = last
    return codes, items


def test_every_code_has_an_entry_and_every_entry_a_code() -> None:
    codes, source = documented()[0], raised(modules())
    assert sorted(set(source) - set(codes)) == [], "raised, not in docs/reference/errors.md"
    assert sorted(set(codes) - set(source)) == [], "in docs/reference/errors.md, never raised"


def test_every_finding_has_an_entry_and_every_entry_a_finding() -> None:
    assert sorted(documented()[1]) == sorted(looked_at())


def test_nothing_is_explained_twice() -> None:
    assert [name for name, times in Counter(name for name, _ in ENTRY.findall(PAGE)).items() if times > 1] == []


def test_the_exit_codes_are_those_of_the_classes() -> None:
    source = raised(modules())
    for code, last in documented()[0].items():
        kinds = source[code]
        assert set(map(int, re.findall(r"\d", last))) == {kind.exit_code for kind in kinds}, code
        assert ("retried" in last) == any(issubclass(kind, errors.Transient) for kind in kinds), code


def test_the_table_of_exit_codes_has_all_of_them() -> None:
    own = {kind.exit_code for kind in error_classes(modules()).values()}
    assert sorted(map(int, EXIT.findall(PAGE))) == sorted({0, findings.DIFFERENT} | own)


def test_codes_are_found_however_they_are_given() -> None:
    assert raised((ast.parse(CALLS),)) == {
        "plain": {errors.Halted},
        "by-module": {errors.DecodeError},
        "late": {errors.Transient},
        "by-constant": {errors.Fenced},
        "either": {errors.PidtsError},
        "or": {errors.PidtsError},
        "by-keyword": {errors.ConfigError},
        "by-method": {errors.ConfigError},
        "by-function": {errors.Halted},
    }
    with pytest.raises(pytest.fail.Exception, match="no code that can be read"):
        raised((ast.parse("Halted(made_up(), 'what')"),))


def test_the_rows_of_each_table_are_sorted_by_code() -> None:
    tables = re.findall(r"^\| code \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert len(tables) > 10
    for table in tables:
        codes = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
        assert len(codes) == table.count("\n")
        assert codes == sorted(codes)
