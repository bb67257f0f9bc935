"""The rules on references."""
