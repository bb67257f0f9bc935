"""A package in a browser: the page, what it must know of a package, and what serves both."""

from cabochon.web.manifest import manifest

__all__ = ["manifest"]
