"""cabochon web: a package in a browser."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from cabochon.cli.options import AsJson, Package
from cabochon.cli.output import print_json, size

__all__ = ["web"]

PORT = 8000
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def web(
    package: Package,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Where to listen; 0 for a free one.", show_default=str(PORT)),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="The address to listen on.", show_default=LOOPBACK[0])
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="SITE", help="Write a static site instead of serving.", show_default=False),
    ] = None,
    libraries: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="A node_modules with the libraries of the page; without it the page names a CDN.",
            show_default=False,
        ),
    ] = None,
    opened: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    as_json: AsJson = False,
) -> None:
    """Serve a page that runs a package in the browser, until Ctrl-C; or write it as a static site."""
    from cabochon.web import assemble, write

    if out is not None and (port is not None or host is not None or opened):
        raise typer.BadParameter("--out writes a site and serves none: no --port, --host, --open")
    site = assemble(package, libraries)
    if out is not None:
        write(site, out)
        _tell_written(out, len(site.files), site.nbytes, as_json=as_json)
        return
    from cabochon.web import open_server

    host, port = host or LOOPBACK[0], PORT if port is None else port
    with open_server(site, host, port) as server:
        _tell_served(server.url, host, as_json=as_json)
        if opened:
            import webbrowser

            webbrowser.open(server.url)
        server.serve_forever()


def _tell_written(out: Path, count: int, nbytes: int, *, as_json: bool) -> None:
    if as_json:
        print_json({"path": out, "files": count, "nbytes": nbytes})
    else:
        print(f"{out}: {count} files, {size(nbytes)}. Put it on any web server; try it with")
        print(f"  python -m http.server --directory {shlex.quote(str(out))}")


def _tell_served(url: str, host: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"url": url}, indent=None)
        return
    print(f"{url}  (Ctrl-C ends it)", flush=True)
    if host not in LOOPBACK:
        print("Browsers give WebGPU and threads to https and to localhost alone.", flush=True)
