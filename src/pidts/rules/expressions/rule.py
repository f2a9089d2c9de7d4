"""One entry of a task file's `expression-filter`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from pidts.model import ConfigError, TableName, Where
from pidts.rules.expressions.parser import parse
from pidts.rules.expressions.tree import Node, NotSupportedError, calls_of, columns_of
from pidts.rules.expressions.typed import is_known
from pidts.schema.parse.lexer import NotUnderstoodError


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpressionRule:
    """A rule for one table and one kind of changes: inserts, deletes, or updates (by old row, new row, or both)."""

    schema: str
    table: str
    insert: str = ""
    update_old: str = ""
    update_new: str = ""
    delete: str = ""
    file: str = field(default="", compare=False)
    line: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        families = [bool(self.insert), bool(self.update_old or self.update_new), bool(self.delete)]
        if sum(families) != 1:
            raise self.refusal(
                "bad-expression",
                f"an expression filter has expressions for {sum(families)} kinds of changes",
                "Give each rule either insert-value-expr, or update-old-value-expr and/or update-new-value-expr, or "
                "delete-value-expr",
            )
        errors = []
        for text in self.texts:
            try:
                self._check(text)
            except ConfigError as error:
                errors.append(error)
        raise_all(errors)

    @property
    def texts(self) -> tuple[str, ...]:
        """Returns the rule's expressions."""
        return tuple(filter(None, (self.insert, self.update_old, self.update_new, self.delete)))

    def _check(self, text: str) -> None:
        try:
            node = parse(text)
            unknown = [call.name for call in calls_of(node) if not is_known(call)]
        except NotUnderstoodError as error:
            raise self.refusal("bad-expression", f"the expression {text!r} is not understood: {error}") from None
        except NotSupportedError as error:
            raise self.not_supported(text, error) from None
        except RecursionError:
            raise self.refusal("bad-expression", "an expression is nested too deeply") from None
        if unknown:
            names = ", ".join(_unknown_function(name) for name in dict.fromkeys(unknown))
            raise self.not_supported(text, NotSupportedError(names))
        for column in columns_of(node):
            expected = [part.lower() for part in (self.schema, self.table)][2 - len(column.qualifier) :]
            if [part.lower() for part in column.qualifier] != expected:
                name = ".".join((*column.qualifier, column.name))
                raise self.refusal("bad-expression", f"the expression {text!r} names {name}, a column of another table")

    def concerns(self, name: TableName) -> bool:
        """Whether the rule concerns this table; case does not matter, as in DM."""
        return (self.schema.lower(), self.table.lower()) == (name.schema.lower(), name.name.lower())

    def not_supported(self, text: str, reason: NotSupportedError) -> ConfigError:
        """Returns the error for an expression whose value cannot be computed exactly."""
        return self.refusal(
            "expression-not-supported",
            f"the expression {text!r} cannot be computed exactly as the server computes it: {reason}",
            "Write the condition in another way, or filter on the target",
        )

    def refusal(self, code: str, what: str, todo: str = "Correct the expression in the task file") -> ConfigError:
        """Returns an error that names this rule."""
        where = Where(table=f"{self.schema}.{self.table}", file=self.file, line=self.line)
        return ConfigError(code, what, where=where, todo=todo)


def raise_all(errors: Sequence[ConfigError]) -> None:
    """Raises the refusals of several expressions as one error, with the code of the first."""
    if errors:
        first = errors[0]
        if len(errors) == 1:
            raise first
        what = "; ".join(dict.fromkeys(error.what for error in errors))
        todo = "; ".join(dict.fromkeys(error.todo for error in errors))
        raise ConfigError(first.code, what, where=first.where, todo=todo)


_OTHER_CLOCK = frozenset({"SYSDATE", "UTC_DATE", "UTC_TIME", "CURTIME", "CURRENT_TIME", "UNIX_TIMESTAMP"})


def _unknown_function(function: str) -> str:
    """Returns the message for an unknown function, with an alternative if there is one."""
    if function in _OTHER_CLOCK:
        return (
            f"{function}() is not known here; write NOW(), UTC_TIMESTAMP() or CURDATE(): the time of the change "
            "in the source's log"
        )
    return f"{function}()"


@lru_cache(maxsize=1024)
def parsed(text: str) -> Node:
    """Parses a text that a rule has checked; the result is cached."""
    return parse(text)
