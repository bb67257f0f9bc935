"""The whole way on the shipped miniature: a trained model of three million parameters with the geometry of E2B."""

from cabochon.demo.account import Account, Check, Sample
from cabochon.demo.tour import MINIATURE, demo

__all__ = ["MINIATURE", "Account", "Check", "Sample", "demo"]
