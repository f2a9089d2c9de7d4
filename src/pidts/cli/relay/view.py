"""Prints the results of the relay commands, as text or as JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.text import Text

from pidts.cli.errors import OutputConsole
from pidts.cli.relay.place import RelayPlace, TargetCheckpoints, read_checkpoints
from pidts.model.errors import sentence
from pidts.relay.integrity_check import broken
from pidts.relay.retention import Release
from pidts.relay.structures import stored_places
from pidts.relay.survey import SegmentSurvey, measure, survey
from pidts.relay.task_needs import Need, read_needs
from pidts.replicate import read_status

_TITLES = ("segment", "size", "entries", "last Lsn", "source position", "last GTID", "times (UTC)")
_TO_THE_RIGHT = (True, True, True, False, False, False, False)
_UNITS = ("B", "kB", "MB", "GB", "TB")


def relay_report(place: RelayPlace, *, verify: bool) -> dict[str, Any]:
    """Returns everything that is known about a relay, as plain values. With `verify`, reads every byte."""
    segments = survey(place.relay, place.source_id)
    target = read_checkpoints(place)
    needs = {need.task: need for need in read_needs(place.folder)}
    if place.task is not None:
        needs.setdefault(place.task.name, Need(place.task.name, None))
    recorded = {need.task for need in read_needs(place.folder)}
    return {
        "source": place.source_id,
        "folder": str(place.folder.path),
        "first": str(segments[0].start) if segments else None,
        "received": str(segments[-1].end) if segments else None,
        "bytes": sum(segment.log_bytes + segment.index_bytes for segment in segments),
        "segments": [_segment(segment) for segment in segments],
        "tasks": [_task(need, target, place, recorded=name in recorded) for name, need in sorted(needs.items())],
        "structures": [str(lsn) for lsn in stored_places(place.folder)],
        "replicator": read_status(place.relay, place.source_id),
        "verified": verify,
        "damage": [
            {"file": one.file, "segment": one.segment, "byte": one.byte, "what": one.what}
            for one in (broken(place.relay, place.source_id) if verify else ())
        ],
    }


def show_reports(reports: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    """Prints a block of text for each relay."""
    if as_json:
        print(json.dumps({"relays": reports}, ensure_ascii=False))
        return
    console = OutputConsole()
    for number, report in enumerate(reports):
        if number:
            console.print()
        _show(console, report)


def show_releases(releases: Sequence[tuple[RelayPlace, Release]], *, applied: bool, as_json: bool) -> None:
    """Prints the segments that were removed, or that `--apply` would remove."""
    if as_json:
        print(json.dumps({"applied": applied, "relays": [_release(*one) for one in releases]}, ensure_ascii=False))
        return
    for place, release in releases:
        size = in_units(sum(segment.log_bytes + segment.index_bytes for segment in release.gone))
        verb = "removed" if applied else "would remove"
        print(f"{place.source_id}: {verb} {len(release.gone)} of {_count(release)} segments ({size})")
        if release.kept:
            print(f"  segment {release.kept[0].number} stays, needed by: {', '.join(release.held_by)}")
    if not applied and any(release.gone for _, release in releases):
        print("nothing was removed; to remove them, add --apply")


def _segment(segment: SegmentSurvey) -> dict[str, Any]:
    return {
        "number": segment.number,
        "after": str(segment.start),
        "last": str(segment.end),
        "position": str(segment.position) if segment.position else None,
        "entries": segment.entries,
        "first_gtid": segment.first_gtid,
        "last_gtid": segment.last_gtid,
        "first_time": segment.first_time,
        "last_time": segment.last_time,
        "log_bytes": segment.log_bytes,
        "index_bytes": segment.index_bytes,
    }


def _task(need: Need, target: TargetCheckpoints, place: RelayPlace, *, recorded: bool) -> dict[str, Any]:
    is_named = place.task is not None and place.task.name == need.task
    checkpoint = target.checkpoints.get(need.task)
    lsn = checkpoint or need.lsn
    return {
        "task": need.task,
        "marked": recorded,
        "mark": str(need.lsn) if need.lsn else None,
        "marked_at": need.written_at,
        "keep_seconds": need.keep_seconds,
        "checkpoint": str(checkpoint) if checkpoint else None,
        "position": target.positions.get(need.task) or None,
        "checkpoint_error": target.error.to_json() if is_named and target.error else None,
        "behind_bytes": measure(place.relay, place.source_id)(lsn) if lsn else None,
    }


def _release(place: RelayPlace, release: Release) -> dict[str, Any]:
    return {
        "source": place.source_id,
        "removed": [segment.number for segment in release.gone],
        "bytes": sum(segment.log_bytes + segment.index_bytes for segment in release.gone),
        "kept": [segment.number for segment in release.kept],
        "needed_from": str(release.needed_from) if release.needed_from else None,
        "held_by": list(release.held_by),
    }


def _show(console: Console, report: dict[str, Any]) -> None:
    count = len(report["segments"])
    title = f" {in_units(report['bytes'])} in {count} segments, {report['folder']}"
    console.print(Text.assemble((report["source"], "bold"), title))
    if count:
        for number, line in enumerate(_segment_lines(report["segments"])):
            console.print(Text(line, "dim" if number == 0 else ""))
    for task in report["tasks"]:
        console.print(Text("  " + _about(task)))
    status = report["replicator"]
    if status and status.get("warning"):
        console.print(Text.assemble(("  warning ", "bold yellow"), status["warning"]))
    if status and status.get("error") and not status["connected"]:
        error = status["error"]
        why = f"[{error['code']}] {sentence(error['what'])} {error['todo']}"
        console.print(Text.assemble(("  receives nothing ", "bold yellow"), why))
    for one in report["damage"]:
        console.print(Text.assemble(("  broken ", "bold red"), f"{one['file']}, byte {one['byte']}: {one['what']}"))
    if report["verified"] and not report["damage"]:
        console.print(Text("  every byte was read back; no damage was found", "green"))


def _segment_lines(segments: list[dict[str, Any]]) -> list[str]:
    """Returns the table of segments. No value is cut, since a shortened Lsn or position is useless."""
    rows = [_TITLES] + [
        (
            str(segment["number"]),
            in_units(segment["log_bytes"] + segment["index_bytes"]),
            f"{segment['entries']:,}",
            segment["last"],
            segment["position"] or "-",
            segment["last_gtid"] or "-",
            f"{_time(segment['first_time'])} to {_time(segment['last_time'])}",
        )
        for segment in segments
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(map(_padded, row, widths, _TO_THE_RIGHT)).rstrip() for row in rows]


def _padded(text: str, width: int, to_the_right: bool) -> str:
    return text.rjust(width) if to_the_right else text.ljust(width)


def _about(task: dict[str, Any]) -> str:
    parts = [f"task {task['task']}:"]
    if task["checkpoint"]:
        parts.append(f"applied up to {task['checkpoint']}")
        if task["position"]:
            parts.append(f"({task['position']})")
    elif task["checkpoint_error"]:
        parts.append(f"the target does not answer [{task['checkpoint_error']['code']}]")
    if task["mark"]:
        age = max(0, int(time.time() - task["marked_at"]))
        parts.append(f"needs the log after {task['mark']} (recorded {age:,} s ago)")
    elif task["marked"]:
        parts.append("has begun and needs the whole log")
    else:
        parts.append("has recorded nothing here")
    if task["behind_bytes"] is not None:
        parts.append(f"{in_units(task['behind_bytes'])} not applied yet")
    if task["keep_seconds"]:
        parts.append(f"keeps all log of the last {task['keep_seconds']:,} s")
    return f"{parts[0]} {', '.join(parts[1:]).replace(', (', ' (')}"


def _count(release: Release) -> int:
    return len(release.gone) + len(release.kept)


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S") if seconds else "-"


def in_units(count: int) -> str:
    """Returns a number of bytes with a unit, such as 1.2 MB."""
    amount, unit = float(count), 0
    while amount >= 1000 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    return f"{amount:.0f} {_UNITS[unit]}" if unit == 0 else f"{amount:.1f} {_UNITS[unit]}"
