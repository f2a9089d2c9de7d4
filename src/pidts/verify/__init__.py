"""Compares target and source by checksums and by key, while programs write to both."""

from pidts.verify.compare import Callbacks, ComparisonInterrupted, ComparisonProgress, Elsewhere, compare
from pidts.verify.compared_servers import EstimatedSize, Key, KeySpan, LogPlaces, NotCaughtUp, Order, Sum
from pidts.verify.match import Matcher
from pidts.verify.memory import ComparisonState, MemoryFile
from pidts.verify.merged import MergedCatchUp, MergedSource, MergedTable
from pidts.verify.normal_forms import EXACT, ICEBERG, POSTGRES, Normals
from pidts.verify.report import DifferenceKind, Report, RowDifference, TableReport, divided
from pidts.verify.row_members import ANYBODY, NOBODY, RowMembers
from pidts.verify.settle import UnequalKeys
from pidts.verify.spans import CompareSpans, SpanComparison, SpanResult, joined
