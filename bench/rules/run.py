"""How much time do a task's rules add to decoding? `python bench/rules/run.py` uses the logs of bench/decode.

The bench decodes a log as a worker does, alternately with and without rules; the cost is the difference. Rows that an
event filter drops are not read, so the cost may be negative.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from pidts.binlog import MAGIC, LogWalker, decode_slice, iter_raw
from pidts.binlog.table_map import TableMap
from pidts.model import ChangeBatch
from pidts.rules import (
    ColumnMapping,
    EventFilter,
    ExpressionFilter,
    ExpressionRule,
    Extract,
    FilterRule,
    RouteRule,
    Routes,
    Rules,
)

HERE = Path(__file__).parent
sys.path += [str(HERE.parent / "decode"), str(HERE.parent)]

from logs import Log, write  # noqa: E402 - a module of bench/decode
from machine import machine  # noqa: E402 - needs the line above

RENAME = Routes((RouteRule("ben*", "~^[a-z]+$", "other", "t"),))
EXTRACT = Routes((RouteRule("ben*", "", "other", "", *(Extract("(.*)", f"of_{at}") for at in range(3))),), "mysql-01")


def ignoring(event: str) -> EventFilter:
    return EventFilter((FilterRule("bench", "*", (event,), (), "Ignore"),))


EXPRESSIONS = {"sb": "k > 5000", "tiny": "k > 5000", "zoo": "de > 500.5 AND da < '2010-01-01'"}
MAPPING = (ColumnMapping("bench", "", "id", "partition id", ("1", "", "")),)


def cases(log: Log) -> dict[str, Rules]:
    text = EXPRESSIONS[log.name]
    expressions = ExpressionFilter((ExpressionRule(schema="bench", table=log.name, insert=text),))
    return {
        "no rules": Rules(),
        "another name": Rules(routes=RENAME),
        "three columns extracted": Rules(routes=EXTRACT),
        "an event filter that keeps all": Rules(events=EventFilter((FilterRule("bench", "*", ("all",)),))),
        "deletes ignored: the other rows are one piece": Rules(events=ignoring("delete")),
        "updates ignored: the other rows are two pieces": Rules(events=ignoring("update")),
        f"expression: {text}": Rules(expressions=expressions),
        "partition id": Rules(mappings=MAPPING),
        "all of these": Rules(events=ignoring("update"), expressions=expressions, mappings=MAPPING, routes=EXTRACT),
    }


def best(works: list[Callable[[], Any]], times: int) -> list[float]:
    """Returns the CPU time of each function's fastest run, in seconds: other programs slow some runs."""
    spent: list[list[float]] = [[] for _ in works]
    for _ in range(times):
        for seconds, work in zip(spent, works, strict=True):
            start = time.process_time()
            work()
            seconds.append(time.process_time() - start)
    return [min(seconds) for seconds in spent]


def measured(log: Log, times: int) -> dict[str, Any]:
    raw = log.path.read_bytes()[len(MAGIC) :]
    walker = LogWalker(log.path.name)
    walker.feed(next(iter_raw(raw)))
    structure: Callable[[TableMap], Any] = lambda found: found.to_table()  # noqa: E731
    reported: Any = {"format": walker.format, "log_file": log.path.name, "change_no": 0, "structures": structure}

    def decoded(rules: Rules | None) -> list[ChangeBatch]:
        batches = decode_slice(raw, **reported, early_filter_of=rules.early_filter if rules else None)
        return list(map(rules.passed, batches)) if rules else batches

    ruled = cases(log)
    decoding, *all_seconds = best([partial(decoded, rules) for rules in (None, *ruled.values())], times)
    found: dict[str, Any] = {"changes": log.changes, "decode_seconds": round(decoding, 4), "rules": {}}
    for (name, rules), seconds in zip(ruled.items(), all_seconds, strict=True):
        kept, cost = sum(map(len, decoded(rules))), seconds - decoding
        found["rules"][name] = {
            "seconds_more": round(cost, 5),
            "share_of_decoding": round(cost / decoding, 4),
            "kept": kept,
        }
        print(f"{log.name:5} {name:40} {cost * 1000:9.2f} ms {cost / decoding:8.2%} of decoding, {kept:,} kept")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=200_000, help="rows of the sysbench table; the other tables have a fifth of them"
    )
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    described = machine()
    with tempfile.TemporaryDirectory() as scratch:
        logs = {log.name: measured(log, options.times) for log in write(Path(scratch), options.rows)}
    result = {"when": datetime.now(UTC).isoformat(timespec="seconds"), "machine": described, "logs": logs}
    (HERE.parent / "results" / "rules.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
