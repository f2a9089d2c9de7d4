"""Writes the results into docs/reference/performance.md, between the two comments around each table.

python bench/apply/table.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

BENCH = Path(__file__).parent.parent
PAGE = BENCH.parent / "docs" / "reference" / "performance.md"
NAMES = {"mariadb": "MariaDB 10.11", "mysql97": "MySQL 9.7", "postgres": "PostgreSQL"}
TABLES = {"sb": "4 columns", "wide": "15 columns, second unique key", "zoo": "27 columns"}
COPIERS = ("mysqldump", "pg_chameleon")
LIMITS = ("bulk", "events")
RIVALS = ("single", "native0", "native4")


def main() -> None:
    page = PAGE.read_text()
    for name, rows in (("apply", applied()), ("copy", copied()), ("latency", latency()), ("idle", idle())):
        if rows:
            text = "\n".join(rows)
            page = re.sub(rf"(<!-- {name} -->\n).*?(<!-- end -->)", rf"\g<1>{text}\n\g<2>", page, flags=re.DOTALL)
    PAGE.write_text(page)


def results(name: str) -> dict[str, Any]:
    path = BENCH / "results" / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def applied() -> list[str]:
    pairs: dict[tuple[str, str, int], dict[str, int]] = {}
    for run in results("apply").get("runs", ()):
        place = run["target"], run["table"], run["rows_per_transaction"]
        pairs.setdefault(place, {})[run["by"]] = run["changes_per_second"]
    if not pairs:
        return []
    head = "| target | table | rows per transaction | PiDTS, changes a second | share of the limit "
    head += "| SQL only, share of the SQL limit | row by row | replica | replica, 4 threads | two workers |"
    lines = [head, "|" + "---|" * 10]
    for (target, table, size), rates in sorted(pairs.items(), key=lambda item: (item[0][1], item[0][0], item[0][2])):
        ours = rates.get("ours")
        if ours is None:
            continue
        limit = max((rates[name] for name in LIMITS if name in rates), default=None)
        shares = (share(ours, limit), share(rates.get("ours-sql"), rates.get("bulk")))
        others = (times(ours, rates.get(name)) for name in RIVALS)
        second = times(rates.get("ours2"), ours)
        cells = (NAMES[target], TABLES[table], f"{size:,}", f"{ours:,}", *shares, *others, second)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def share(rate: int | None, whole: int | None) -> str:
    return f"{rate / whole:.2f}" if rate and whole else "-"


def times(rate: int | None, other: int | None) -> str:
    return f"{rate / other:.2f} x" if rate and other else "-"


def copied() -> list[str]:
    pairs: dict[tuple[str, str, str], dict[str, dict[str, Any]]] = {}
    for run in results("copy").get("runs", ()):
        pairs.setdefault((run["tables"], run["source"], run["target"]), {})[run["by"]] = run
    lines = []
    for (tables, source, target), runs in sorted(pairs.items()):
        rates = {name: run["rows_per_second"] for name, run in runs.items()}
        limit, ours = max(rates.get("limit", 0), rates.get("limit2", 0)), rates.get("ours")
        if ours and limit:
            names = "; ".join(TABLES[name] for name in tables.split(","))
            others = [f"{ours / rates[name]:.1f} x" if name in rates else "-" for name in COPIERS]
            start = f"{runs['ours']['start_seconds']} s"
            cells = f"{NAMES[source]} → {NAMES[target]}", names, f"{ours:,}", f"{ours / limit:.2f}", *others, start
            lines.append(f"| {' | '.join(cells)} |")
    head = "| | tables | PiDTS, rows a second | share of the limit | mariadb-dump, piped | pg_chameleon | start |"
    return lines and [head, "|" + "---|" * 7, *lines]


def latency() -> list[str]:
    runs = results("latency").get("runs", ())
    if not runs:
        return []
    names = list(dict.fromkeys(name for run in runs for name in run["parts_ms"]))
    lines = ["| | " + " | ".join(f"{NAMES[run['source']]} → {NAMES[run['target']]}" for run in runs) + " |"]
    lines.append("|" + "---|" * (len(runs) + 1))
    whole, parts = ("median", "p90", "p99"), [run["parts_ms"] for run in runs]
    lines += [f"| {name} | " + " | ".join(f"{run['ms'][name]} ms" for run in runs) + " |" for name in whole]
    lines += [f"| *{name}* | " + " | ".join(f"{part.get(name, '-')} ms" for part in parts) + " |" for name in names]
    return lines


def idle() -> list[str]:
    found = results("idle")
    if not found:
        return []
    parts = ", ".join(f"{name} {share}" for name, share in found["processes"].items() if share)
    return [f"{found['percent_of_a_core']} % of a core ({parts})."]


if __name__ == "__main__":
    main()
