"""The rules on source."""
