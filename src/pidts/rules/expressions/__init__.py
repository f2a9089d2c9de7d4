"""Expression filters: conditions on rows, computed on whole columns exactly as the source's server would.

`parser` reads an expression into a `tree`; `typed` gives it a table's types; `filter` asks it of a batch. What a server
computes by settings that we do not know, or in a way that servers differ in, is refused when the task starts.
"""

from pidts.rules.expressions.filter import ExpressionFilter
from pidts.rules.expressions.rule import ExpressionRule

__all__ = ["ExpressionFilter", "ExpressionRule"]
