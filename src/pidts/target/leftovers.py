"""Describes the parts of a statement that no target gets, for readers of the log or of the plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pidts.schema import Action, AddKey, AlterOption, AlterTable, CreateTable, Statement


def left_out(statement: Statement) -> tuple[str, ...]:
    """Foreign keys and checks: rows arrive table by table, and what the source let in is right."""
    match statement:
        case CreateTable(constraints=actions) | AlterTable(actions=actions):
            return tuple(_notes(actions))
        case _:
            return ()


def _notes(actions: Iterable[Action]) -> Iterator[str]:
    for action in actions:
        match action:
            case AddKey(key=key, supports_foreign_key=True, rule=rule):
                note = f"foreign key ({', '.join(key.columns)}): not made here, the source sees to it"
                yield (
                    f"{note}; rows that {rule} changes there are in no log and stay as they are here" if rule else note
                )
            case AlterOption(what="check"):
                yield f"{action.text}: not made here, the source sees to it"
            case _:
                pass
