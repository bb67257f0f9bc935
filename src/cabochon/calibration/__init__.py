"""What a text says of weights: the mean squares that each channel is multiplied with, for the search of scales."""

from cabochon.calibration.calibrate import calibrate
from cabochon.calibration.collect import collect
from cabochon.calibration.sensitivity import Role, Sensitivity, sensitivity
from cabochon.recipes.statistics import Statistics

__all__ = ["Role", "Sensitivity", "Statistics", "calibrate", "collect", "sensitivity"]
