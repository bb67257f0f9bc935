"""A hub on the loopback: the routes that huggingface_hub asks for, over folders of files.

Repository, revision and file come from the URL as on the real hub; ETags, commits, ranges and error codes are
answered as it does. Connections can be dropped in the middle of a file, to see whether a download resumes.
"""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """What the server has, what it is to break, and what it was asked."""

    repositories: dict[str, Path]
    gated: set[str] = field(default_factory=set)
    drop_after: dict[str, list[int]] = field(
        default_factory=dict
    )  # file -> bytes sent before each broken connection
    asked: list[tuple[str, str, str | None]] = field(default_factory=list)  # method, path, Range
    endpoint: str = ""

    def fetched(self) -> list[str]:
        """The files asked for with GET, in order."""
        return [
            path.rsplit("/", 1)[1]
            for method, path, _ in self.asked
            if method == "GET" and "/resolve/" in path
        ]


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: ClassVar[Hub]
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append((self.command, path, self.headers.get("Range")))
        parts = path.strip("/").split("/")
        api = parts[:2] == ["api", "models"]
        owner, name, route, revision, *rest = [*(parts[2:] if api else parts), "", "", "", ""]
        repository = f"{owner}/{name}"
        if repository in self.hub.gated and not self.headers.get("Authorization"):
            self._refuse(401, "GatedRepo")
        elif repository not in self.hub.repositories:
            self._refuse(401, "RepoNotFound")
        elif revision not in ("main", COMMIT):
            self._refuse(404, "RevisionNotFound")
        else:
            self._serve(repository, route, "/".join(filter(None, rest)))

    def _serve(self, repository: str, route: str, file: str) -> None:
        folder = self.hub.repositories[repository]
        files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        if route == "revision":
            self._json({"id": repository, "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]})
        elif route == "tree":
            self._json(
                [
                    {
                        "type": "file",
                        "path": name,
                        "size": (folder / name).stat().st_size,
                        "oid": _oid(folder / name),
                    }
                    for name in files
                ]
            )
        elif route == "resolve" and file in files:
            self._file(folder / file)
        else:
            self._refuse(404, "EntryNotFound")

    def _json(self, value: Any) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _refuse(self, status: int, code: str) -> None:
        self._send(status, b"", {"X-Error-Code": code, "X-Error-Message": code})

    def _file(self, file: Path) -> None:
        content = file.read_bytes()
        headers = {"ETag": f'"{_oid(file)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        wanted = self.headers.get("Range")
        if not wanted:
            self._send(200, content, headers, file.name)
            return
        start = int(wanted.removeprefix("bytes=").split("-")[0])
        headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self._send(206, content[start:], headers, file.name)

    def _send(self, status: int, body: bytes, headers: dict[str, str], file: str = "") -> None:
        self.send_response(status)
        for key, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if breaks := self.hub.drop_after.get(file):
            self.wfile.write(body[: breaks.pop(0)])
            self.close_connection = True
            self.connection.close()
        else:
            self.wfile.write(body)


def _oid(file: Path) -> str:
    return hashlib.sha1(file.read_bytes()).hexdigest()
