"""The command line. A command parses, calls one function, prints; `main` turns errors into messages and exit codes."""

from cabochon.cli.app import main

__all__ = ["main"]
