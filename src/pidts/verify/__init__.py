"""Compares target and source by checksums and by key, while both are written to."""

from pidts.verify.compare import Outside, Progress, Stopped, compare
from pidts.verify.match import Matcher
from pidts.verify.memory import Memory, MemoryFile
from pidts.verify.merged import Group, MergedFlight, MergedSource
from pidts.verify.normal import EXACT, LAKE, POSTGRES, Normals
from pidts.verify.owners import ANYBODY, NOBODY, Owners
from pidts.verify.report import Difference, Finding, Report, TableReport
from pidts.verify.settle import Settled
from pidts.verify.side import Behind, Key, Mark, Order, Size, Span, Sum

__all__ = [
    "ANYBODY",
    "EXACT",
    "LAKE",
    "NOBODY",
    "POSTGRES",
    "Behind",
    "Difference",
    "Finding",
    "Group",
    "Key",
    "Mark",
    "Matcher",
    "Memory",
    "MemoryFile",
    "MergedFlight",
    "MergedSource",
    "Normals",
    "Order",
    "Outside",
    "Owners",
    "Progress",
    "Report",
    "Settled",
    "Size",
    "Span",
    "Stopped",
    "Sum",
    "TableReport",
    "compare",
]
