"""Precisions: how a package stores a weight, and the type its ports and activations have."""

from cabochon.recipes.precision import PRECISIONS, Precision

__all__ = ["PRECISIONS", "Precision"]
