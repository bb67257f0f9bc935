"""The dry run: what a checkpoint holds, what building it takes, and which targets can carry it. No weight is read."""

from cabochon.planning.plan import Cache, Large, Part, Plan, plan
from cabochon.planning.sizes import Component
from cabochon.planning.verdicts import Verdict

__all__ = ["Cache", "Component", "Large", "Part", "Plan", "Verdict", "plan"]
