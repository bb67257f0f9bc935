"""A package in a browser: the page, what it must know of a package, and what serves both."""

from cabochon.web.manifest import manifest
from cabochon.web.serving import Server, open_server
from cabochon.web.site import Site, assemble, write

__all__ = ["Server", "Site", "assemble", "manifest", "open_server", "write"]
