"""Which kernels each execution provider has, what it computes wrongly and what slowly: data, and how it was got."""

from cabochon.kernels.quirks import QUIRKS, Quirk
from cabochon.kernels.tables import PROVIDERS, Kernel, Operator, Provider

__all__ = ["PROVIDERS", "QUIRKS", "Kernel", "Operator", "Provider", "Quirk"]
