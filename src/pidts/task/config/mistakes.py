"""Collects the mistakes of a task file and reports all at once.

For example, a user who brings a task file of TiDB DM needs the whole list of the keys to change.

A reader that can continue after a mistake records it by `mistake` or `recording_mistakes`. A mistake that ends the
reading is reported together with those that were recorded before. Without `all_mistakes`, each mistake is raised where
it occurs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar

from pidts.model import ConfigError, Where

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_found: ContextVar[list[ConfigError] | None] = ContextVar("mistakes", default=None)


def mistake(error: ConfigError) -> None:
    """Records a mistake after which the reader can continue."""
    found = _found.get()
    if found is None:
        raise error
    found.append(error)


@contextmanager
def recording_mistakes() -> Iterator[None]:
    """Records an error in the block as a mistake; later code must not depend on the block's result."""
    try:
        yield
    except ConfigError as error:
        mistake(error)


def all_mistakes(read: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Makes the reader of a whole file report all mistakes that it finds."""

    @wraps(read)
    def collected(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        found: list[ConfigError] = []
        token = _found.set(found)
        try:
            result = read(*args, **kwargs)
        except ConfigError as error:
            raise _together([*found, error]) from None
        finally:
            _found.reset(token)
        if found:
            raise _together(found)
        return result

    return collected


def _together(errors: Sequence[ConfigError]) -> ConfigError:
    """Returns one error with all mistakes, sorted by line. A mistake that several instances have is named once."""
    alone = list({str(error): error for error in errors}.values())
    if len(alone) == 1:
        return alone[0]
    files = list(dict.fromkeys(error.where.file for error in alone))
    alone.sort(key=lambda error: (files.index(error.where.file), error.where.line))
    lines = "".join(f"\n  {error.where}: [{error.code}] {error.what}{_todo(error)}" for error in alone)
    return ConfigError(
        "several-mistakes",
        f"{len(alone)} mistakes{lines}",
        where=Where(file=alone[0].where.file),
        todo="Correct each of them, then check the file: pidts check TASK",
    )


def _todo(error: ConfigError) -> str:
    return f". {error.todo}" if error.todo else ""
