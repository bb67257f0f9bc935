"""Measurements: what importing, installing, building and running cost. `python -m bench --help`."""
