"""Precisions: how a package stores a weight, and the type its ports and activations have."""

from cabochon.recipes.precision import PRECISIONS, Precision
from cabochon.recipes.recipe import Recipe

__all__ = ["PRECISIONS", "Precision", "Recipe"]
