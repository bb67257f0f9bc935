"""Comparison with transformers, with published answers, of two packages. Modules of references know torch."""

from cabochon.parity.checking import check
from cabochon.parity.comparison import Comparison, compare
from cabochon.parity.evidence import Evidence, Verdict
from cabochon.parity.ranges import RangeReport, ranges

__all__ = ["Comparison", "Evidence", "RangeReport", "Verdict", "check", "compare", "ranges"]
