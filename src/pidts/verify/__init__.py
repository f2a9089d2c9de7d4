"""Is the target equal to the source: two sides read in chunks and compared by key."""

from pidts.verify.compare import compare
from pidts.verify.normal import EXACT, POSTGRES, Normal, Normals
from pidts.verify.report import Difference, Finding, Report, TableReport
from pidts.verify.side import Side, pages

__all__ = [
    "EXACT",
    "POSTGRES",
    "Difference",
    "Finding",
    "Normal",
    "Normals",
    "Report",
    "Side",
    "TableReport",
    "compare",
    "pages",
]
