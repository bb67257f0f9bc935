"""Dialects: how a target spells the idioms of the model; and the tables of targets."""

from cabochon.dialects.conversions import CONVERSIONS, Conversion
from cabochon.dialects.targets import TARGETS, Target

__all__ = ["CONVERSIONS", "TARGETS", "Conversion", "Target"]
