"""The rules on hygiene."""
