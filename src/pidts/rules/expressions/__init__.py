"""Expression filters: conditions on rows, computed on whole columns exactly as the source's server computes them.

`parser` parses an expression into a `tree`; `typed` adds a table's types; `filter` applies it to a batch. If the result
of an expression depends on unknown settings of the server, or differs between servers, the task does not start.
"""

from pidts.rules.expressions.filter import ExpressionFilter
from pidts.rules.expressions.rule import ExpressionRule
