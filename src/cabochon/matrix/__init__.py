"""All variants of a model in one folder: a restartable run, split over machines where one is too small; an index."""

from cabochon.matrix.outcome import Outcome, Ran
from cabochon.matrix.plan import Matrix, plan_matrix
from cabochon.matrix.run import build_matrix
from cabochon.matrix.variants import VARIANTS, Variant
from cabochon.matrix.watch import Event, Watch

__all__ = ["VARIANTS", "Event", "Matrix", "Outcome", "Ran", "Variant", "Watch", "build_matrix", "plan_matrix"]
