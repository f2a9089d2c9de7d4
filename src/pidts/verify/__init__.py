"""Compares target and source by checksums and by key, while both are written to."""

from pidts.verify.compare import Outside, Progress, Stopped, compare
from pidts.verify.memory import Memory, MemoryFile
from pidts.verify.merged import Group, MergedFlight, MergedSource
from pidts.verify.normal import EXACT, POSTGRES, Normal, Normals
from pidts.verify.owners import ANYBODY, NOBODY, Owners
from pidts.verify.report import Difference, Finding, Report, TableReport
from pidts.verify.settle import Settled
from pidts.verify.side import Behind, Flight, Key, Leg, Mark, Member, Order, Size, SourceSide, Span, Sum, TargetSide

__all__ = [
    "ANYBODY",
    "EXACT",
    "NOBODY",
    "POSTGRES",
    "Behind",
    "Difference",
    "Finding",
    "Flight",
    "Group",
    "Key",
    "Leg",
    "Mark",
    "Member",
    "Memory",
    "MemoryFile",
    "MergedFlight",
    "MergedSource",
    "Normal",
    "Normals",
    "Order",
    "Outside",
    "Owners",
    "Progress",
    "Report",
    "Settled",
    "Size",
    "SourceSide",
    "Span",
    "Stopped",
    "Sum",
    "TableReport",
    "TargetSide",
    "compare",
]
