"""Mistakes made on purpose in our own formulas, each of which must show: `make mutations`."""
