"""Which provider of which runtime has a kernel for a node, what it computes wrongly, and what is slow: tables as data."""
