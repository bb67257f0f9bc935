"""The table of the README on the variants of a checkpoint: what each was executed by, and how right it was."""
