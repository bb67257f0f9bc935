"""The inference metadata of a package: the document, where it comes from, and the loop it describes."""
