"""All mistakes of a task file at once, as far as one does not hide another: whoever moves a file here wants the list.

A reader that can go on behind a mistake says so by `mistake` or `going_on`; what cannot be read past ends the reading,
and is told with all that was found before. Without somebody who collects, each mistake is raised where it is found.
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
    """One behind which the file can be read on."""
    found = _found.get()
    if found is None:
        raise error
    found.append(error)


@contextmanager
def going_on() -> Iterator[None]:
    """What is refused in here is a mistake, and nothing of what comes behind depends on it."""
    try:
        yield
    except ConfigError as error:
        mistake(error)


def all_mistakes(read: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Have a reader of a whole file tell all that it meets."""

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
    """Each once, though several instances read it, in the order of the lines."""
    alone = list({str(error): error for error in errors}.values())
    if len(alone) == 1:
        return alone[0]
    files = list(dict.fromkeys(error.where.file for error in alone))
    alone.sort(key=lambda error: (files.index(error.where.file), error.where.line))
    lines = "".join(f"\n  {error.where}: [{error.code}] {error.what}{_todo(error)}" for error in alone)
    return ConfigError("several-mistakes", f"{len(alone)} mistakes{lines}", where=Where(file=alone[0].where.file))


def _todo(error: ConfigError) -> str:
    return f". {error.todo}" if error.todo else ""
