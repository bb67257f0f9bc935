"""Dialects: how a target spells the idioms of the model; and the table of targets."""

from cabochon.dialects.targets import TARGETS, Target

__all__ = ["TARGETS", "Target"]
