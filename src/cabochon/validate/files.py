"""The rules on files."""
