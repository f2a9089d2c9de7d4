"""Reads the settings of DM's units (dump, load, sync, validate) that have a meaning in PiDTS.

PiDTS has no dump that is loaded afterwards: one thread or Spark task reads a chunk and loads it. PiDTS also has no
queue of single statements: a batch of whole transactions is reduced, written and checkpointed together. In DM, `batch`
and `queue-size` limit the size of a transaction and the use of memory. In PiDTS, they limit the batch in proportion:
DM's default value gives PiDTS's default limit, and half of DM's default gives half of this limit.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pidts.model.similar_names import suggestion
from pidts.plan import Limits
from pidts.task.config import dm_keys
from pidts.task.config.duration import parse_go_duration
from pidts.task.config.mistakes import mistake
from pidts.task.config.section import Section

BATCH = 100
QUEUE = 1024
"""DM's defaults for the size of a batch and of a queue."""

_LIMITS = Limits()
_COPY_THREADS = 4
_MOST_WORKERS = 256
_MOST = 10_000


@dataclass(frozen=True, slots=True)
class SyncerSettings:
    """The settings for applying changes to the target."""

    workers: int
    safe_mode: bool
    safe_start: bool
    """Whether changes that the target may have had before the task's first start are written in safe mode."""
    batch_rows: int
    batch_bytes: int


def read_syncing(task: Section, instance: Section, instances: Sequence[Section]) -> SyncerSettings:
    """Reads `syncers` and the instance's own settings."""
    workers, safe_mode, safe_start = 1, False, True
    batch, queue = BATCH, QUEUE
    for section in _blocks(task, instance, instances, "syncer"):
        workers = section.integer("worker-count", workers, minimum=1, maximum=_MOST_WORKERS)
        batch = section.integer("batch", batch, minimum=1, maximum=BATCH * _MOST)
        # As in DM, 0 means the default.
        queue = section.integer("queue-size", queue, maximum=QUEUE * _MOST) or QUEUE
        for key in ("compact", "multiple-rows"):
            if not section.flag(key, default=True):
                section.note(
                    key, "no effect: changes of a row are always compacted, and many rows are always written at once"
                )
        _note_interval(section)
        safe_mode = section.flag("safe-mode", default=safe_mode)
        safe_start = _safe_start(section, safe_start, safe_mode=safe_mode)
        section.finish(dm_keys.SYNCER)
    return SyncerSettings(
        workers=instance.integer("syncer-thread", 0, maximum=_MOST_WORKERS) or workers,
        safe_mode=safe_mode,
        safe_start=safe_start,
        batch_rows=max(1, _LIMITS.row_events * batch // BATCH),
        batch_bytes=max(1, _LIMITS.bytes * queue // QUEUE),
    )


def read_copy_threads(task: Section, instance: Section, instances: Sequence[Section]) -> int:
    """Returns the smaller of the dump's and the loader's threads, since each chunk is read and loaded by one thread."""
    given: list[int] = []
    for block, key, own, keys in (
        ("mydumper", "threads", "mydumper-thread", dm_keys.DUMPER),
        ("loader", "pool-size", "loader-thread", dm_keys.LOADER),
    ):
        threads = 0
        for section in _blocks(task, instance, instances, block):
            # As in DM, 0 means the default.
            threads = section.integer(key, threads, maximum=_MOST_WORKERS)
            if block == "mydumper":
                _read_extra_args(section)
            section.finish(keys)
        given.append(instance.integer(own, 0, maximum=_MOST_WORKERS) or threads)
    return min(filter(None, given), default=_COPY_THREADS)


def _read_extra_args(section: Section) -> None:
    """Adds notes on options that only decide how the dump is written; refuses all others."""
    key = "extra-args"
    try:
        words = shlex.split(section.text(key, ""))
    except ValueError as error:
        raise section.error(key, "bad-value", f"the options are not understood: {error}") from None
    options = [
        word.partition("=")[0]
        for before, word in pairwise(("", *words))
        if word.startswith("-") or ("=" in word and not (before.startswith("-") and "=" not in before))
    ]
    for option in options:
        name = option if option.startswith("--") else option[:2]
        if name not in dm_keys.DUMP_OPTIONS:
            what = f"the option {option} is refused: options of the dump may choose rows"
            mistake(section.error(key, "not-supported", what, "Remove it; rules choose tables and changes."))
            return
    if set(options) - {"--consistency"}:
        section.note(key, dm_keys.NO_DUMP)
    elif words and not options:
        mistake(section.error(key, "not-supported", "these words are not options", "Remove them."))


def read_validators(task: Section, instance: Section, instances: Sequence[Section]) -> None:
    """Reads `validators`, which have no effect. Refuses the values that `dm_keys.VALIDATOR` refuses."""
    for section in _blocks(task, instance, instances, "validator"):
        section.finish(dm_keys.VALIDATOR)


def _note_interval(section: Section) -> None:
    if section.has("checkpoint-flush-interval"):
        section.integer("checkpoint-flush-interval", 30)
        section.note("checkpoint-flush-interval", dm_keys.TOGETHER)


def _safe_start(section: Section, before: bool, *, safe_mode: bool) -> bool:  # noqa: FBT001 - a value, not a switch
    key = "safe-mode-duration"
    given = section.text(key, "")
    if not given:
        return before
    try:
        seconds = parse_go_duration(given)
    except ValueError as error:
        raise section.error(key, "bad-value", str(error)) from None
    if seconds:
        section.note(key, dm_keys.SAFE_RANGE)
    elif safe_mode:
        raise section.error(key, "bad-value", "0 switches safe mode off, and safe-mode: true on", "Remove one.")
    return seconds > 0


def _blocks(task: Section, instance: Section, instances: Sequence[Section], block: str) -> Iterator[Section]:
    """Yields an instance's sections for one of DM's units: the named section, then the instance's own section."""
    named = task.section(f"{block}s")
    key = f"{block}-config-name"
    name = instance.text(key, "")
    if name and not named.has(name):
        raise instance.error(key, "unknown-name", f"there is no {name!r} in {block}s", suggestion(name, named.names))
    used = {one.text(key, "") for one in instances}
    for known in named.names:
        if known not in used:
            todo = f"Name it in the instance's {key}, or remove it."
            mistake(named.error(known, "unused-name", "no instance uses it", todo))
        if known == name:
            yield named.section(known)
    if instance.has(block):
        yield instance.section(block)
