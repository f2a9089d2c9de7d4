"""`pidts events`: from options to lines on stdout."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from pidts.cli.event_input import ServerInput, open_input
from pidts.cli.event_json import event_line
from pidts.cli.event_range import EventRange, parse_point, parse_tables
from pidts.cli.event_reader import read_events


def print_events(
    sources: Sequence[str], *, start: str, end: str, tables: str, follow: bool, schema_from: str, zone: int
) -> None:
    """Until the end of the range or the log, Ctrl-C, or a reader that has gone."""
    begin = parse_point(start, "--from") if start else None
    wanted = EventRange(begin, parse_point(end, "--to") if end else None, parse_tables(tables))
    log = open_input(sources, start=begin, follow=follow, schema_from=schema_from, environ=os.environ)
    name = log.server.source_id if isinstance(log, ServerInput) else ""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for event in read_events(log, wanted, zone=zone, say=_say):
            print(event_line(event, name), flush=follow)
        sys.stdout.flush()
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        # `pidts events ... | head` has what it wanted; Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _say(text: str) -> None:
    print(f"note: {text}", file=sys.stderr, flush=True)
