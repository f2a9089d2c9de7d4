"""Prints halted tables, shards that wait for each other, and ddl commands with their effect."""

from __future__ import annotations

import json
import re
import shlex
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pidts.cli.backlog_text import (
    backlog_size,
    first_of,
    indented,
    moment,
    position_of,
    retained_log,
    shard_name,
    since,
)
from pidts.cli.ddl.lock_view import effect_on_others, show_lock
from pidts.cli.errors import for_this_task, show_error
from pidts.model import TRANSACTION_TOO_LARGE, CommandKind, DdlCommand, Halt, Halted, TableName, Where
from pidts.model.advice import COMPARE_TODO, RESYNC, SKIP, fill_zone, with_place, with_tables, with_task
from pidts.model.errors import escaped, in_one_line, listed, plural
from pidts.task.operate.ddl_commands import is_waiting_for_shards, leaves_old_values, needs_operator
from pidts.task.operate.shard_locks import split_by_agreement

if TYPE_CHECKING:
    from pidts.task.operate.backlog import HeldTablesOfSource
    from pidts.task.operate.ddl_commands import BlockedChange
    from pidts.task.operate.shard_locks import OpenLock

_MOST_RESYNCED = 20
"""The most tables that a printed command names."""
_HALTS = 12
"""The most halts that are shown at the end of a run."""
_OLD_SECONDS = 24 * 3600
"""A finished ddl command is listed for this many seconds after its end."""
_WITH_SERVICE = "(with a service: `pidts start`, not `pidts run`)"
_SERVICE_STOPS = "(with a service: `pidts stop`, and then `pidts start` instead of `pidts run`)"
_MOVES_ROWS = frozenset({"ddl-moves-rows"})
"""Codes of halts at statements that move rows, although the log does not contain these rows."""
_TARGET_DIFFERS = frozenset({"row-diverged", "foreign-write"})
"""Codes of halts at rows that another program has written on the target. The source needs no correction."""
_REFUSED = "target-refused"
_COMMAND_REFUSED = "order-refused"
"""The code of halts at a statement of a ddl command that the target refuses."""
_TARGET_REFUSES = frozenset({_REFUSED, "target-shape", TRANSACTION_TOO_LARGE})
"""Codes of halts at rows that the target refuses. The advice of such a halt says what to correct on the target, or is
`COMPARE_TODO` if the target has not named the cause.
"""
_RETRIES, _COPIES_AGAIN = re.compile("pidts ddl retry "), re.compile(r"pidts run \S+ --resync|pidts zones return ")
"""Patterns of commands in a halt's own advice. A sentence that only mentions `--resync` does not match."""
_OF_OPERATOR = re.compile(r"pidts ddl replace TASK SQL --source [^;`]*? --at \S*\w")
"""The command `REPLACE` in a halt's own advice, with the change's place."""
_SKIPS = re.compile("pidts ddl skip ")
_ALWAYS = "Then copy the table again"
"""A part of the advice of halts at statements after which rows of the target have other values than on the source."""
_ROW_IN_ZONE = (
    "If a row of the target is in the way, change or delete this row in a session of a program, so that the tasks "
    "carry the change to the other zones. For example, its key may differ only in spaces at its end"
)
"""The advice about a row that a zone refuses. A correction on the source would be later in the log than this row."""
_DEPENDED_ON = frozenset({"objects-depend"})
"""Codes of halts at statements that the target refuses as long as other objects depend on the table."""
_NEEDS_COPY = frozenset({"ddl-not-translatable"})
"""Codes of halts at statements that give rows new values. An operator can run such a statement on the target, but only
the source has the values.
"""


def advice(halt: Halt, task: str, source: str = "") -> str:
    """Returns the advice about a halt: what to correct, and the commands to run after that, quoted for a shell.

    `source` is given if the task has several sources.
    """
    return ". ".join(advised_steps(halt, task, source))


def next_steps(one: BlockedChange, task: str, source: str = "") -> list[str]:
    """Returns the advice about a blocked change. If a ddl command is given for it, says when it is carried out."""
    halt = one.halt
    if halt is None:
        return []
    command = one.command
    if command is None or not one.is_decided:
        return advised_steps(halt, task, source)
    quoted = shlex.quote(task)
    at = _at(halt, source)
    carried_out = (
        "Nothing, if the task runs: it carries out the ddl command within seconds. Otherwise the next start does: "
        f"pidts run {quoted} {_WITH_SERVICE}"
    )
    steps = [carried_out]
    if leaves_old_values(halt, command.kind, command.statements):
        tables = shlex.quote(_of_source(halt.tables, source))
        copy = f"copy the table again: stop the task, then run: pidts run {quoted} --resync {tables} {_WITH_SERVICE}"
        steps.append(f"Then {copy if halt.into_zone is None else _fill(halt.into_zone)}")
    if command.kind is not CommandKind.REVERT:
        steps.append(f"To withdraw the ddl command before that, run: pidts ddl revert {quoted} {at} --yes")
    return steps


def advised_steps(halt: Halt, task: str, source: str) -> list[str]:
    """Returns the advice about a halt as sentences without a full stop; see `advice`."""
    todo = halt.todo.rstrip(".")
    if halt.statement and halt.code != _COMMAND_REFUSED:  # this halt's statement is the source's, not the refused one
        filled = f"pidts ddl replace TASK {_prefilled(halt, _at(halt, source), confirmed=halt.code != _REFUSED)}"
        todo = _OF_OPERATOR.sub(lambda _: filled, todo)
    todo = with_task(todo, task)
    steps = [*([todo] if todo else []), *_commands(halt, shlex.quote(task), source)]
    if halt.into_zone is None and _COPIES_AGAIN.search(todo) and not any("top the task" in step for step in steps):
        steps.append(f"Stop the task before you copy the table again {_SERVICE_STOPS}")
    return steps


def _commands(halt: Halt, quoted: str, source: str) -> list[str]:
    at = _at(halt, source)
    tables = shlex.quote(_of_source(halt.tables, source))
    resync = f"stop the task, then run: pidts run {quoted} --resync {tables} {_WITH_SERVICE}"
    copy = f"copy the table again: {resync}" if halt.into_zone is None else _fill(halt.into_zone)
    if is_waiting_for_shards(halt):
        return [f"See: pidts ddl list {quoted}"]
    if halt.statement and _OF_OPERATOR.search(halt.todo) and _has_all_commands(halt):
        return [] if halt.tables else ["Then run the task again"]
    if halt.statement and halt.code in _NEEDS_COPY:
        first = f"First run: pidts ddl replace {quoted} {_prefilled(halt, at)}"
        when = "Then" if _ALWAYS in halt.todo else "If rows then have wrong values,"
        return [first, f"{when} {copy}"]
    if halt.statement and halt.code in _DEPENDED_ON:
        again = f"Then run: pidts ddl retry {quoted} {at} --yes; then create the objects again that are still valid"
        whole = _prefilled(halt, at, before="DROP ...; ", after="; CREATE ...", confirmed=False)
        steps = [again, f"Or run all of it at once: pidts ddl replace {quoted} {whole}"]
        return steps if halt.tables else [*steps, "Then run the task again"]
    if halt.statement and halt.code in _MOVES_ROWS:
        return []  # its own advice has all commands
    if halt.statement:
        words = ", with a statement in the target's SQL and with the target's names"
        if halt.instead:  # a refused statement would be refused again
            words = ", after you have changed the statement" if halt.code == _REFUSED else ""
        retry = "Or" if _RETRIES.search(halt.todo) else f"Then run: pidts ddl retry {quoted} {at} --yes; or"
        commands = (
            f"{retry} run instead: pidts ddl skip {quoted} {at} --yes, "
            f"or{words}: pidts ddl replace {quoted} {_prefilled(halt, at, confirmed=halt.code != _REFUSED)}"
        )
        return [commands] if halt.tables else [commands, "Then run the task again"]
    if halt.tables:
        of_source = f" --source {shlex.quote(source)}" if source else ""
        again = f"pidts ddl retry {quoted} --table {shlex.quote(str(halt.tables[0]))}{of_source} --yes"
        return _after_refused_row(halt, again, resync)
    return [f"Then run the task again: pidts run {quoted} {_WITH_SERVICE}"]


def _at(halt: Halt, source: str) -> str:
    return f"--source {shlex.quote(source)} --at {halt.lsn}" if source else f"--at {halt.lsn}"


def _has_all_commands(halt: Halt) -> bool:
    """Whether the halt's own advice, which has `ddl replace`, also has the other commands that help."""
    if halt.code in _NEEDS_COPY:
        return _COPIES_AGAIN.search(halt.todo) is not None and "--resync TABLE" not in halt.todo
    return _RETRIES.search(halt.todo) is not None and _SKIPS.search(halt.todo) is not None


def _after_refused_row(halt: Halt, again: str, resync: str) -> list[str]:
    """Returns the commands that an operator may need after a refused row, and that the halt's own advice does not have.

    Either the target or the row has to be corrected. If the halt does not show which, the operator chooses.
    """
    if _RETRIES.search(halt.todo):
        return []
    names_cause = halt.code in _TARGET_REFUSES and halt.todo != COMPARE_TODO
    copies = _COPIES_AGAIN.search(halt.todo) is not None
    if not copies and (halt.code in _TARGET_DIFFERS or (names_cause and halt.code != _REFUSED)):
        return [f"Then run: {again}"]
    if halt.into_zone is not None:
        fills = [] if copies else [f"If the target cannot take the row, {_fill(halt.into_zone)}"]
        return [_ROW_IN_ZONE, f"When the cause of the refusal is removed, run: {again}", *fills]
    if copies:
        return [f"If you have corrected the target, run: {again}"] if names_cause else []
    right = "Then run" if names_cause else "If the row is right: remove the cause of the refusal, then run"
    return [f"{right}: {again}", f"If the row is wrong: correct it on the source, {resync}"]


def _fill(zone: str) -> str:
    return f"fill the whole zone again: {fill_zone(zone)} (docs/operate/zones.md)"


def _prefilled(halt: Halt, at: str, *, before: str = "", after: str = "", confirmed: bool = True) -> str:
    """Returns the arguments that follow `ddl replace TASK`: the statements as one shell argument, and the place.

    `--yes` is left out if an operator has to edit the statements first: they are the source's statements, or they are
    incomplete (`before`, `after`).
    """
    statements = shlex.quote(f"{before}{'; '.join(halt.instead or (halt.statement,))}{after}")
    return f"{statements} {at} --yes" if halt.instead and confirmed else f"{statements} {at}"


def _of_source(tables: Iterable[TableName], source: str) -> str:
    """Returns the tables as `--resync` takes them, each with `source`: other sources may have the same tables."""
    return ",".join(f"{source}:{name}" if source else str(name) for name in tables)


def show_halts(halts: Iterable[tuple[str, Halt]], task: Path) -> None:
    """Prints the first halts, each with its source if that is given. Halts that need an operator come first."""
    in_order = sorted(halts, key=lambda one: not needs_operator(one[1]))
    for source, halt in in_order[:_HALTS]:
        show_halt(halt, task, source)
    if len(in_order) > _HALTS:
        print(
            f"and {len(in_order) - _HALTS:,} more; to see them: pidts ddl list {shlex.quote(str(task))}",
            file=sys.stderr,
        )


def show_halt(halt: Halt, task: Path, source: str = "") -> None:
    """Prints one halt to stderr in the same way as an error."""
    tables = ", ".join(map(str, halt.tables))
    where = Where(source=source, position=halt.position or str(halt.lsn), table=tables, key=halt.key)
    statement = f" ({halt.statement[:200]})" if halt.statement else ""
    todo = advice(halt, str(task), source)
    show_error(Halted(halt.code, f"{halt.what}{statement}", where=where, todo=todo), as_json=False)


def show_ddl_list(
    name: str,
    task: Path,
    changes: Sequence[BlockedChange],
    locks: Sequence[OpenLock],
    held: Sequence[HeldTablesOfSource],
    *,
    as_json: bool,
    whole: bool = False,
) -> None:
    """Prints the list of `pidts ddl list`. With `whole`, prints all shards of a lock, otherwise only the first ones."""
    if as_json:
        print(json.dumps({"task": name, **_list_json(changes, locks, held)}, ensure_ascii=False))
        return
    several = len(held) > 1
    waiting = [one for one in changes if one.is_blocked]
    for lock in locks:
        show_lock(lock, task, whole=whole)
    for one in waiting:
        if not one.waits_for_shards:
            show_halted_tables(one, task, several=several)
    all_commands = [one for one in changes if one.command is not None]
    commands = [one for one in all_commands if not _is_old(one)]
    for one in commands:
        done = f", {moment(one.done_at)}" if one.done_at else ""
        print(f"{_command_text(one)} at {_place(one, several=several)}{done}")
        print("\n".join(f"  {sql}" for sql in _ordered(one)))
    for part in held:
        if part.tables:
            is_one = len(part.tables) == 1
            catches_up = "the table catches up by itself" if is_one else "the tables catch up by themselves"
            then = "once the causes above are removed" if waiting or locks else "while the task runs"
            print(
                f"{part.source}: {plural('table', len(part.tables))} waiting; {retained_log(part)}; {catches_up} {then}"
            )
    if not waiting and not commands:
        print(f"{name}: nothing is halted")
    if len(all_commands) > len(commands):
        old = plural("ddl command", len(all_commands) - len(commands))
        print(f"{old} finished more than a day ago; to see them: pidts ddl list {shlex.quote(str(task))} --json")


def _is_old(one: BlockedChange) -> bool:
    """Whether the ddl command was finished long ago, and no table is halted at its change any more."""
    return one.is_done and one.halt is None and 0 < one.done_at < time.time() - _OLD_SECONDS


def show_retry(rows: Sequence[BlockedChange], *, given: bool, as_json: bool) -> None:
    """Prints the tables whose refused rows are tried again. `given`: whether the command was recorded."""
    tables = [str(name) for one in rows for name in one.tables]
    says = [f"{', '.join(map(str, one.tables))}: tries again to write the rows that were refused" for one in rows]
    if as_json:
        print(json.dumps({"tables": tables, "order": "retry", "given": given, "says": says}, ensure_ascii=False))
        return
    _show_effect(says, given=given)


def show_command(
    at: BlockedChange,
    kind: CommandKind,
    statements: Sequence[str],
    *,
    given: bool,
    as_json: bool,
    lock: OpenLock | None = None,
    changed: Mapping[str, Collection[TableName]] | None = None,
    name: str = "",
) -> None:
    """Prints the effect of a ddl command on the schema change and on the rows that wait for it.

    - `given`: whether the command was recorded (`--yes`).
    - `lock`: the shard lock that the change waits for, if any.
    - `changed`: the tables of each source whose rows the command may leave wrong; None: the change's own tables.
    - `name`: the name of the command that was typed, if it is not the name of `kind`.
    """
    says = _command_lines(at, kind, statements, lock, changed or {at.source: at.tables})
    if as_json:
        about = {"source": at.source, "lsn": str(at.lsn), "statement": at.statement, "order": name or kind.value}
        more = {"statements": list(statements), "given": given, "backlog": at.backlog.to_json() if at.backlog else None}
        more |= {"stays": list(at.halt.stays) if at.halt is not None and kind is CommandKind.UNLOCK else []}
        more |= {"counts_for": [shard_name(one) for one in _continuing(at, kind, lock)] if at.tables else []}
        print(json.dumps({**about, **more, "lock": lock.to_json() if lock else None, "says": says}, ensure_ascii=False))
        return
    _show_effect(says, given=given)


def _command_lines(
    at: BlockedChange,
    kind: CommandKind,
    statements: Sequence[str],
    lock: OpenLock | None,
    changed: Mapping[str, Collection[TableName]],
) -> list[str]:
    """Returns the effect of a ddl command as lines for the terminal and for the service's page."""
    says = [f"{at.source}, Lsn {at.lsn}: {at.statement}"]
    if at.halt is not None:
        says.append(f"  it waits because of [{at.halt.code}] {at.halt.what}")
    journal = at.journal
    if journal is not None and journal.step:
        says.append(f"  already on the target: {'; '.join(journal.rendered[: journal.step])}")
    if (forgotten := _forgotten(at, kind, statements)) is not None:
        sql = f": {'; '.join(forgotten.statements)}" if forgotten.statements else ""
        says.append(f"  the command that was recorded for it is forgotten: ddl {forgotten.kind}{sql}")
    stays = at.halt.stays if at.halt is not None and kind is CommandKind.UNLOCK else ()
    if stays:
        says.append(f"  unlocking does not end the wait: {'; '.join(stays)}")
        skip = with_place(SKIP, at.source, str(at.lsn))
        again = with_tables(RESYNC, at.source, at.tables)
        says.append(for_this_task(f"  Run instead: {skip}. Then stop the task, and run: {again}"))
        return says
    says.append(f"  {_effect(kind, lock)}{':' if statements else ''}")
    says += [f"    {sql}" for sql in statements]
    says += [f"  {line}" for line in (_effect_on_shards(at, kind, lock) if lock is not None else ())]
    shown, left = first_of(_continuing(at, kind, lock))
    for one in shown:
        if one.backlog is not None:
            then = "; they are applied next" if one.backlog.transactions else ""
            says.append(f"  {shard_name(one)}: {backlog_size(one.backlog)}{then}")
    if left:
        says.append(f"  … and the backlog of {left:,} more shards")
    moved = at.halt is not None and at.halt.code == "rename-moves-rows"
    if moved and kind is CommandKind.SKIP:
        says.append(
            "  Rows that are on the target stay as they are. Under the new name the task may not find them any more"
        )
    elif kind in {CommandKind.SKIP, CommandKind.REPLACE} and at.tables and not moved:
        zone = at.halt.into_zone if at.halt is not None else None
        then = f"stop it, and copy the table again {_SERVICE_STOPS}" if zone is None else "fill the whole zone again"
        names, too_many = _named_tables(at, changed)
        again = f"pidts run TASK --resync {shlex.quote(names)}"
        says.append(
            "  Rows that are on the target stay as they are. If the source changed their values, let the task carry "
            f"this command out, then {then}:"
        )
        says.append(for_this_task(f"    {again if zone is None else fill_zone(zone)}"))
        if too_many and zone is None:
            says.append(for_this_task("  Name all other shards of the target table, too: see pidts status TASK"))
    return says


def _named_tables(at: BlockedChange, changed: Mapping[str, Collection[TableName]]) -> tuple[str, bool]:
    """Returns the changed tables as `--resync` takes them; the change's own tables and True if there are too many."""
    if sum(map(len, changed.values())) > _MOST_RESYNCED:
        return _of_source(at.tables, at.source), True
    has_shards = len(changed) > 1 or (at.halt is not None and is_waiting_for_shards(at.halt))
    names = (_of_source(sorted(tables), source if has_shards else "") for source, tables in sorted(changed.items()))
    return ",".join(names), False


def _forgotten(at: BlockedChange, kind: CommandKind, statements: Sequence[str]) -> DdlCommand | None:
    """Returns the recorded ddl command that this command replaces; None if there is none, or if both do the same."""
    old = at.command
    if old is None or at.is_done or old.kind is CommandKind.REVERT:
        return None
    return None if (old.kind, old.statements) == (kind, tuple(statements)) else old


def _show_effect(says: Sequence[str], *, given: bool) -> None:
    if not given:
        print("With --yes, this command does the following:")
    print("\n".join(says))
    if given:
        print("Recorded. A running task carries this out within seconds, otherwise the next `pidts run` does.")
    else:
        print("Nothing has been done yet. To do it, add --yes.")


def _effect(kind: CommandKind, lock: OpenLock | None) -> str:
    match kind:
        case CommandKind.UNLOCK:
            return "the target runs it now, without waiting for the shards that have not reached it"
        case CommandKind.SKIP:
            return "the target does not run it; later rows are still read with the source's new structure"
        case CommandKind.REPLACE:
            return "the target runs these statements instead"
        case CommandKind.INJECT:
            return "the target runs these statements before it" + (", once all shards have reached it" if lock else "")
        case CommandKind.REVERT:
            return (
                "the target runs it unchanged, once all shards have reached it"
                if lock
                else "the target tries it again, unchanged"
            )


def _continuing(at: BlockedChange, kind: CommandKind, lock: OpenLock | None) -> list[BlockedChange]:
    """Returns the shards that continue after this command."""
    return (
        split_by_agreement(lock, at)[0]
        if lock is not None and kind in {CommandKind.UNLOCK, CommandKind.REPLACE}
        else [at]
    )


def _effect_on_shards(at: BlockedChange, kind: CommandKind, lock: OpenLock) -> list[str]:
    """Returns lines about the command's effect on later rows of this shard and on the other shards."""
    if kind is CommandKind.SKIP:
        lines = [f"{lock.target} keeps its columns, and this shard's rows must fit them; the other shards still wait"]
        lacks = at.halt.lacks if at.halt is not None else ()
        return (
            [*lines, f"rows of its new structure do not fit, so the shard will halt: {'; '.join(lacks)}"]
            if lacks
            else lines
        )
    if kind not in {CommandKind.UNLOCK, CommandKind.REPLACE}:
        return []
    lines = effect_on_others(lock, at)
    if lock.awaited:
        lines += [
            f"the target does not wait for: {listed(lock.awaited)}",
            "rows of these shards are applied as long as they fit; the target does not run the change again",
        ]
    unfit = ", ".join(at.halt.unfit) if at.halt is not None and kind is CommandKind.UNLOCK else ""
    if unfit:
        lines.append(
            f"rows of these shards do not fit, so the shards halt until they make the change themselves: {unfit}"
        )
        lines.append(
            for_this_task(
                f"so make the change on these shards first; if a table halts, stop the task, then run: {RESYNC}"
            )
        )
    return lines


def show_halted_tables(one: BlockedChange, task: Path, *, several: bool) -> None:
    """Prints tables that are halted and do not wait for shards, with the cause and what to do."""
    halt = one.halt
    if halt is None:
        return
    source = f"{one.source}: " if several else ""
    tables = in_one_line(", ".join(map(str, halt.tables))) or "all tables"
    applied = ", Lsn" if halt.statement else ", applied up to Lsn"
    print(f"{source}{tables}: halted at {position_of(one)}{applied} {halt.lsn}{since(halt.since)}")
    if halt.statement:
        print(f"  statement  {escaped(halt.statement)}")
    if one.command is not None and (one.is_decided or halt.code == _COMMAND_REFUSED):
        print(
            f"  command    {escaped(': '.join(filter(None, (_command_text(one), '; '.join(one.command.statements)))))}"
        )
    print(f"  because    [{halt.code}] {escaped(halt.why)}")
    for number, line in enumerate(halt.values):
        print(f"  {'' if number else 'values':<10} {line}")
    if one.backlog is not None:
        print(f"  backlog    {backlog_size(one.backlog)}")
    if (change := one.next_change) is not None:
        print(f"  then       {escaped(change.statement)} (at {change.position or '-'}, Lsn {change.lsn})")
        if change.further:
            least = "" if change.is_whole else "at least "
            print(f"             and {least}{plural('more schema change', change.further)} of the same tables")
    for number, step in enumerate(next_steps(one, str(task), one.source if several else "")):
        print(f"  {'' if number else 'do':<10} {escaped(indented(step))}")


def _place(one: BlockedChange, *, several: bool) -> str:
    return f"{one.source}, Lsn {one.lsn}" if several else f"Lsn {one.lsn}"


def _state(one: BlockedChange) -> str:
    if one.is_done:
        return "done"
    if one.halt is not None and one.halt.code == _COMMAND_REFUSED and not one.is_decided:
        return "failed"
    return "begun" if one.command is not None and one.command.taken else "not begun"


def _command_text(one: BlockedChange) -> str:
    if one.command is None:
        return ""
    name = "retry" if one.command.kind is CommandKind.REVERT else one.command.kind  # The two commands do the same.
    return f"ddl {name} ({_state(one)})"


def _ordered(one: BlockedChange) -> tuple[str, ...]:
    return (one.command.statements if one.command is not None else ()) or (one.statement,)


def _list_json(
    changes: Sequence[BlockedChange], locks: Sequence[OpenLock], held: Sequence[HeldTablesOfSource]
) -> dict[str, Any]:
    return {
        "halted": [halted_json(one, one.halt) for one in changes if one.is_blocked and one.halt is not None],
        "locks": [lock.to_json() for lock in locks],
        "orders": [_command_json(one) for one in changes if one.command is not None],
        "held": [part.to_json() for part in held if part.tables],
    }


def halted_json(one: BlockedChange, halt: Halt) -> dict[str, Any]:
    """Returns the JSON of halted tables: the halt, their backlog, and their next schema change after the halt."""
    backlog = one.backlog.to_json() if one.backlog else None
    change = one.next_change.to_json() if one.next_change else None
    more = {"todo": for_this_task(halt.todo), "values": list(halt.values), "source": one.source}
    return {**halt.to_json(), **more, "backlog": backlog, "next_change": change}


def _command_json(one: BlockedChange) -> dict[str, Any]:
    command = one.command
    if command is None:
        return {}
    return {
        "source": one.source,
        "lsn": str(one.lsn),
        "statement": one.statement,
        "order": command.kind.value,
        "statements": list(command.statements),
        "begun": command.taken,
        "failed": _state(one) == "failed",
        "done": one.is_done,
        "done_at": one.done_at or None,
    }
