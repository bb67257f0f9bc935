"""How well a package predicts a text: perplexity, and what divides it from a reference package."""

from cabochon.evaluation.evaluate import evaluate
from cabochon.evaluation.figures import Divergence, Evaluation, Figures, Place
from cabochon.evaluation.recording import record

__all__ = ["Divergence", "Evaluation", "Figures", "Place", "evaluate", "record"]
