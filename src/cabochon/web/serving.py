"""A small HTTP server for a site: exact names, ranges, entity tags, and the headers that threads in a page need."""

import errno
import hashlib
import io
import os
import re
import socket
import socketserver
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple, cast
from urllib.parse import unquote, urlsplit

from cabochon.errors import CabochonError
from cabochon.web.site import INDEX, Site

__all__ = ["Server", "open_server"]

TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".wasm": "application/wasm",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".md": "text/plain; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".yaml": "text/plain; charset=utf-8",
    ".jinja": "text/plain; charset=utf-8",
}
HEADERS: Mapping[str, str] = {
    # without the first two a page has no shared memory, and so no threads
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",  # kept, but asked for by its tag each time: a package may be built again
    "Accept-Ranges": "bytes",
}
LOOPBACK = ("127.0.0.1", "::1", "localhost")
RANGE = re.compile(r"bytes=([0-9]{0,20})-([0-9]{0,20})")


class Part(NamedTuple):
    """Bytes `start` to `end` of a file, the latter not included."""

    start: int
    end: int


class Server(ThreadingHTTPServer):
    """Serves one site until it is shut down; a thread for each connection."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], site: Site) -> None:
        """Listen on `address`; OSError where that is not possible."""
        self.site = site
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Without the look-up of the host's name, which may take seconds and is not needed."""
        socketserver.TCPServer.server_bind(self)
        host, self.server_port = self.server_address[:2]
        self.server_name = str(host)

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that closes a connection is no error worth a word."""

    @property
    def url(self) -> str:
        """Where the page is."""
        host = f"[{self.server_name}]" if ":" in self.server_name else self.server_name
        return f"http://{host}:{self.server_port}/"


def open_server(site: Site, host: str, port: int) -> Server:
    """A server that listens. Raises CabochonError where the port is taken or the host is not this machine's."""
    try:
        return Server((host, port), site)
    except OverflowError as error:
        raise CabochonError(f"port {port}; expected one from 0 to 65535", at="--port") from error
    except OSError as error:
        reason, at, remedy = (error.strerror or str(error)).lower(), "--host", "use 127.0.0.1"
        if error.errno == errno.EADDRINUSE:
            reason, at, remedy = f"port {port} is in use", "--port", "choose another, or 0 for a free one"
        elif error.errno == errno.EACCES:
            at, remedy = "--port", "choose one from 1024 on"
        raise CabochonError(f"cannot listen on {host}:{port}: {reason}", at=at, remedy=remedy) from error


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "cabochon", ""
    timeout = 120  # seconds that a silent connection stays open

    def do_GET(self) -> None:
        with suppress(ConnectionError, TimeoutError):
            self._answer(body=True)

    def do_HEAD(self) -> None:
        with suppress(ConnectionError, TimeoutError):
            self._answer(body=False)

    def _refuse(self) -> None:
        self.close_connection = True  # what else it sent is not read
        self._say(HTTPStatus.METHOD_NOT_ALLOWED, {"Allow": "GET, HEAD"})

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = _refuse  # noqa: N815

    def _answer(self, *, body: bool) -> None:
        if not self._meant():
            self._say(HTTPStatus.MISDIRECTED_REQUEST)
            return
        try:
            name = unquote(urlsplit(self.path).path).removeprefix("/") or INDEX
        except ValueError:  # "http://[/": an address that is none
            self._say(HTTPStatus.BAD_REQUEST)
            return
        found = cast(Server, self.server).site.files.get(name)
        opened = None if found is None else _open(found)
        if opened is None:
            self._say(HTTPStatus.NOT_FOUND)
            return
        with opened as file:
            self._send(file, name, _tag(found, file), body=body)

    def _meant(self) -> bool:
        """Whether the host that was asked for is this one: a page of another name, which points here, reads nothing."""
        listening, asked = cast(Server, self.server).server_name, self.headers.get("Host")
        name = "" if asked is None else re.sub(r":\d+$", "", asked.strip()).strip("[]").lower()
        return not name or listening not in LOOPBACK or name in LOOPBACK

    def _send(self, file: BinaryIO, name: str, tag: str, *, body: bool) -> None:
        size = file.seek(0, io.SEEK_END)
        headers = {"Content-Type": TYPES.get(PurePosixPath(name).suffix, "application/octet-stream")}
        headers["ETag"] = tag
        if tag in self.headers.get("If-None-Match", "").split(", "):
            self._say(HTTPStatus.NOT_MODIFIED, headers, text=False)
            return
        part = self._asked(size, tag)
        if part is None:
            self._say(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, {"Content-Range": f"bytes */{size}"})
            return
        whole = part == Part(0, size)
        if not whole:
            headers["Content-Range"] = f"bytes {part.start}-{part.end - 1}/{size}"
        headers["Content-Length"] = str(part.end - part.start)
        self._head(HTTPStatus.OK if whole else HTTPStatus.PARTIAL_CONTENT, headers)
        if body:
            self._copy(file, part)

    def _asked(self, size: int, tag: str) -> Part | None:
        """The part of a file that is asked for, all of it where none is; None for one that it does not have.

        Several parts at once are answered with the whole, as RFC 9110 (14.2) allows.
        """
        match = RANGE.fullmatch(self.headers.get("Range", "").strip())
        if match is None or match.group() == "bytes=-" or self.headers.get("If-Range", tag) != tag:
            return Part(0, size)
        first, last = match.groups()
        if not first:
            start, end = max(size - int(last), 0), size
        else:
            start, end = int(first), min(int(last) + 1, size) if last else size
        return Part(start, end) if start < end else None

    def _copy(self, file: BinaryIO, part: Part) -> None:
        file.seek(part.start)
        sent = 0
        if part.end > part.start:
            sent = self.connection.sendfile(file, part.start, part.end - part.start)
        if sent < part.end - part.start:  # the file became shorter meanwhile
            self.close_connection = True

    def _say(
        self, status: HTTPStatus, headers: Mapping[str, str] | None = None, *, text: bool = True
    ) -> None:
        """An answer that is its status in words."""
        said = f"{status.value} {status.phrase}\n".encode() if text else b""
        own = {"Content-Type": "text/plain", "Content-Length": str(len(said))} if text else {}
        self._head(status, own | dict(headers or {}))
        if self.command != "HEAD":
            self.wfile.write(said)

    def _head(self, status: HTTPStatus, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not printed."""


def _open(found: Path | bytes) -> BinaryIO | None:
    """The file to read; None where it is gone, or a symlink took its place."""
    if isinstance(found, bytes):
        return io.BytesIO(found)
    if found.resolve() != found:
        return None
    try:
        return found.open("rb")
    except OSError:
        return None


def _tag(found: Path | bytes | None, file: BinaryIO) -> str:
    """The entity tag: another one whenever the bytes are others."""
    if isinstance(found, bytes):
        return f'"{hashlib.sha256(found).hexdigest()[:32]}"'
    stat = os.fstat(file.fileno())
    return f'"{stat.st_mtime_ns:x}-{stat.st_size:x}-{stat.st_ino:x}"'
