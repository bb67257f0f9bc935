"""What a text says of weights: the mean squares that each channel is multiplied with, for the search of scales."""

from cabochon.calibration.calibrate import calibrate
from cabochon.calibration.collect import Statistics, collect

__all__ = ["Statistics", "calibrate", "collect"]
