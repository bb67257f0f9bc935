"""The table of the README on the members of the family: what is built of each, how large it is, and how right."""
