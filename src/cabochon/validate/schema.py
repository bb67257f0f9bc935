"""The rules on schema."""
