"""Passes PiDTS's errors through Spark with their code, place and advice. Decides which errors of Spark may be retried.

An exception inside a Spark task reaches the driver as text in a traceback. For an error of PiDTS, this text contains
the whole error.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import structlog

from pidts.model import ConfigError, DecodeError, Fenced, Halted, PidtsError, PrecheckFailed, Transient, Where
from pidts.plan.continuity import Discontinuity

_KINDS: dict[str, type[PidtsError]] = {
    kind.__name__: kind
    for kind in (PidtsError, ConfigError, PrecheckFailed, Halted, DecodeError, Discontinuity, Fenced, Transient)
}
Failure = TypeVar("Failure", bound=BaseException)
_CARRIED = re.compile(r"<pidts-error>(\{\"kind\".*?\})</pidts-error>", re.DOTALL)

_log = structlog.get_logger(__name__)


class CarriedError(Exception):
    """Carries an error of PiDTS as text in its message, since only the message passes through the JVM."""


@contextmanager
def carried() -> Iterator[None]:
    """Wraps code that runs in a process of Spark: turns errors of PiDTS into errors that the JVM can pass on."""
    try:
        yield
    except PidtsError as error:
        raise CarriedError(f"<pidts-error>{as_text(error)}</pidts-error>") from error


def as_text(error: PidtsError) -> str:
    """Returns an error of PiDTS as JSON."""
    kind = next(one.__name__ for one in type(error).__mro__ if one.__name__ in _KINDS)
    return json.dumps({"kind": kind, **error.to_json(), "values": error.values})


def from_text(text: str) -> PidtsError:
    """Returns the error from a text that `as_text` has made."""
    data = json.loads(text)
    where, values = Where(**data["where"]), tuple(data["values"])
    return _KINDS[data["kind"]](data["code"], data["what"], where=where, todo=data["todo"], values=values)


def gravest(errors: Iterable[Failure]) -> Failure:
    """Returns the first error that needs an operator; if all errors may end by themselves, the first error."""
    return min(errors, key=lambda error: isinstance(error, Transient))


def restored(error: Exception) -> Exception:
    """Returns the error of PiDTS that is inside a Spark exception.

    If the Spark exception has none, returns a `Transient` with Spark's text. Any other exception is returned unchanged.
    """
    if not is_spark_error(error):
        return error
    text = str(error)
    found = _CARRIED.search(text)
    if found:
        return from_text(found.group(1))
    _log.debug("Spark failed", text=text)
    if _has_no_answer(error, text):
        return Transient("spark-died", "Spark's JVM has ended")
    return Transient("spark-failed", f"Spark could not finish a batch: {_reason(text)[:500]}")


def _has_no_answer(error: Exception, text: str) -> bool:
    """Whether Py4J got no answer from the JVM, and no exception either. Then the JVM has ended during the call."""
    from py4j.protocol import Py4JError, Py4JJavaError

    return isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError) and "Trace:" not in text


def is_spark_error(error: BaseException) -> bool:
    """Whether this is an exception of Spark or of the bridge to its JVM. The check imports neither of them."""
    if "pyspark" not in sys.modules:
        return False
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException | Py4JError)


def _reason(text: str) -> str:
    """Returns the line that names the exception: the last line of Python's traceback, if there is one."""
    before_jvm = re.split(r"^\s*(?:at |JVM stacktrace)", text, maxsplit=1, flags=re.MULTILINE)[0]
    python = before_jvm.partition("Traceback (most recent call last)")[2]
    lines = [line for line in (python or before_jvm).splitlines() if line.strip() and not line.startswith(" ")]
    if not lines:
        return "it gave no reason"
    return lines[-1] if python else lines[0]
