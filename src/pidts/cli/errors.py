"""How a command ends badly: an error a person can act on, on stderr; the same for machines, last on stdout."""

from __future__ import annotations

import json
import sys
import tempfile
import traceback

from rich.console import Console
from rich.text import Text

from pidts.model import PidtsError


def show_error(error: PidtsError, *, as_json: bool) -> None:
    """Code, what, where, what to do. Nothing in it is taken for markup: names and values are the user's."""
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    console.print(Text.assemble(("error", "bold red"), f" [{error.code}] ", (error.what, "bold")))
    for label, text in (("where", str(error.where)), ("do", error.todo)):
        if text:
            console.print(Text.assemble((f"  {label:<6}", "dim"), text))
    if as_json:
        print(json.dumps({"error": error.to_json()}, ensure_ascii=False), flush=True)


def as_unexpected(error: Exception, *, debug: bool) -> PidtsError:
    """A fault of ours, in one line; the traceback goes to stderr, or to a file that the line names."""
    text = "".join(traceback.format_exception(error))
    what = f"{type(error).__name__}: {error}".partition("\n")[0]
    if debug:
        print(text, file=sys.stderr)
        return PidtsError("unexpected", what)
    with tempfile.NamedTemporaryFile("w", prefix="pidts-", suffix=".log", delete=False) as log:
        log.write(text)
    return PidtsError("unexpected", what, todo=f"This is a fault of pidts; the traceback is in {log.name}")
