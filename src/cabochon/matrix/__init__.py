"""All variants of a checkpoint: which there are, what each is made from, and the run that builds them."""
