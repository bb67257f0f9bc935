"""Precisions: how a package stores a weight, and the type its ports and activations have."""

from cabochon.recipes.part import Packing, Part
from cabochon.recipes.precision import PRECISIONS, Precision, Rule, Table, Weight
from cabochon.recipes.recipe import Recipe

__all__ = ["PRECISIONS", "Packing", "Part", "Precision", "Recipe", "Rule", "Table", "Weight"]
