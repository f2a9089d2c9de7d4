"""What a task takes of its source and where it goes, by DM's rules: pure decisions over names and columns."""

from pidts.rules.allow_list import SYSTEM_SCHEMAS, AllowList
from pidts.rules.column_mapping import ColumnMapping, mapping_of
from pidts.rules.event_filter import EventFilter, FilterRule, Verdict
from pidts.rules.expressions import ExpressionFilter, ExpressionRule
from pidts.rules.routes import Extract, Landing, RouteRule, Routes
from pidts.rules.stage import Rules
from pidts.rules.together import merged, together

__all__ = [
    "SYSTEM_SCHEMAS",
    "AllowList",
    "ColumnMapping",
    "EventFilter",
    "ExpressionFilter",
    "ExpressionRule",
    "Extract",
    "FilterRule",
    "Landing",
    "RouteRule",
    "Routes",
    "Rules",
    "Verdict",
    "mapping_of",
    "merged",
    "together",
]
