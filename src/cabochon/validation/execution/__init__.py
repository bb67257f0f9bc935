"""The graphs of a package at work: sessions, feeds from what the document says, decoders that are driven, workflows."""
