"""The rules of TiDB DM: which changes of a source a task takes, and where they go.

The rules decide only by names, structures and changes that their callers pass, and read nothing from a server.
"""

from pidts.rules.allow_list import SYSTEM_SCHEMAS, AllowList
from pidts.rules.column_mapping import ColumnMapping, mapping_of
from pidts.rules.event_filter import EventFilter, FilterDecision, FilterRule
from pidts.rules.expressions import ExpressionFilter, ExpressionRule
from pidts.rules.ownership import OwnedRange, Owners
from pidts.rules.routes import Destination, Extract, RouteRule, Routes
from pidts.rules.stage import Rules, merged, together
