"""The server: exact names, types, headers, ranges, entity tags, and how it ends."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from cabochon.errors import CabochonError
from cabochon.web import Server, Site, open_server
from packages import Packages

CONTENT = bytes(range(100))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data.bin").write_bytes(CONTENT)
    return tmp_path.resolve() / "data.bin"


@pytest.fixture
def server(data: Path) -> Generator[Server]:
    """A small site, served for as long as a test runs."""
    files: dict[str, Path | bytes] = {
        "index.html": b"<!doctype html>",
        "a/b.wasm": b"\0asm",
        "a/b.mjs": b"",
        "package/model.onnx.data": data,
        "package/a name": b"spaced",
    }
    with open_server(Site(files, {}), "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server: Server, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body, of the path as it is."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=5)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, headers=given)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), body


@pytest.mark.parametrize(
    ("path", "type_", "body"),
    [
        ("/", "text/html; charset=utf-8", b"<!doctype html>"),
        ("/index.html?x=1#y", "text/html; charset=utf-8", b"<!doctype html>"),
        ("/a/b.wasm", "application/wasm", b"\0asm"),
        ("/a/b.mjs", "text/javascript; charset=utf-8", b""),
        ("/package/model.onnx.data", "application/octet-stream", CONTENT),
        ("/package/a%20name", "application/octet-stream", b"spaced"),
    ],
)
def test_files_come_with_their_type(server: Server, path: str, type_: str, body: bytes) -> None:
    status, headers, found = ask(server, path)
    assert (status, headers["Content-Type"], found) == (200, type_, body)
    assert headers["Content-Length"] == str(len(body))


def test_threads_need_isolation(server: Server) -> None:
    headers = ask(server, "/")[1]
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert headers["Cross-Origin-Embedder-Policy"] == "require-corp"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert ask(server, "/none")[1]["Cross-Origin-Embedder-Policy"] == "require-corp"


@pytest.mark.parametrize(
    "path",
    [
        "/none",
        "/a",
        "/a/",
        "/package/",
        "/package",
        "/../index.html",
        "/package/../index.html",
        "/package/%2e%2e/index.html",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/package/..%2findex.html",
        "/package//etc/passwd",
        "/package/model.onnx.data%00",
        "/package\\model.onnx.data",
        "/./index.html",
    ],
)
def test_there_is_nothing_but_the_files(server: Server, path: str) -> None:
    assert ask(server, path)[0] == 404


def test_a_symlink_that_takes_a_files_place_is_not_followed(server: Server, data: Path) -> None:
    (data.parent / "secret").write_bytes(b"secret")
    data.unlink()
    data.symlink_to("secret")
    assert ask(server, "/package/model.onnx.data")[0] == 404


def test_a_file_that_is_gone_is_not_found(server: Server, data: Path) -> None:
    data.unlink()
    assert ask(server, "/package/model.onnx.data")[0] == 404


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [
        ("bytes=0-9", 0, 9),
        ("bytes=90-", 90, 99),
        ("bytes=-5", 95, 99),
        ("bytes=95-1000", 95, 99),
        ("bytes=-500", 0, 99),
    ],
)
def test_a_range_is_answered_with_it(server: Server, asked: str, first: int, last: int) -> None:
    status, headers, body = ask(server, "/package/model.onnx.data", Range=asked)
    assert body == CONTENT[first : last + 1]
    if (first, last) == (0, 99):
        assert status == 200
    else:
        assert (status, headers["Content-Range"]) == (206, f"bytes {first}-{last}/100")


@pytest.mark.parametrize("asked", ["bytes=100-", "bytes=5-4", "bytes=-0"])
def test_a_range_that_is_not_there(server: Server, asked: str) -> None:
    status, headers, _ = ask(server, "/package/model.onnx.data", Range=asked)
    assert (status, headers["Content-Range"]) == (416, "bytes */100")


@pytest.mark.parametrize(
    "asked", ["bytes=0-1,5-6", "lines=0-1", "bytes=-", "bytes=a-b", f"bytes={'9' * 5000}-"]
)
def test_other_ranges_are_answered_with_the_whole(server: Server, asked: str) -> None:
    status, _, body = ask(server, "/package/model.onnx.data", Range=asked)
    assert (status, body) == (200, CONTENT)


def test_a_known_file_is_not_sent_again(server: Server, data: Path) -> None:
    tag = ask(server, "/package/model.onnx.data")[1]["ETag"]
    status, headers, body = ask(server, "/package/model.onnx.data", If_None_Match=tag)
    assert (status, headers["ETag"], body) == (304, tag, b"")
    data.write_bytes(CONTENT[::-1])
    assert ask(server, "/package/model.onnx.data", If_None_Match=tag)[::2] == (200, CONTENT[::-1])
    assert ask(server, "/package/model.onnx.data", If_Range=tag, Range="bytes=0-1")[0] == 200


def test_a_head_is_the_same_without_the_body(server: Server) -> None:
    status, headers, body = ask(server, "/package/model.onnx.data", "HEAD")
    assert (status, headers["Content-Length"], body) == (200, "100", b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_nothing_can_be_changed(server: Server, method: str) -> None:
    status, headers, _ = ask(server, "/", method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


def test_a_port_that_is_taken(server: Server) -> None:
    with pytest.raises(CabochonError, match=f"port {server.server_port} is in use") as refused:
        open_server(Site({}, {}), "127.0.0.1", server.server_port)
    assert "or 0 for a free one" in refused.value.remedy


def test_an_address_of_another_machine() -> None:
    with pytest.raises(CabochonError, match=r"cannot listen on 192\.0\.2\.1:0"):
        open_server(Site({}, {}), "192.0.2.1", 0)


def test_the_program_serves_until_it_is_interrupted(packages: Packages) -> None:
    code = "from cabochon.cli import main; main()"
    command = [sys.executable, "-c", code, "web", str(packages()), "--port", "0", "--json"]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert program.stdout is not None
    url = json.loads(program.stdout.readline())["url"]
    address = url.removeprefix("http://").removesuffix("/").split(":")
    with socket.create_connection((address[0], int(address[1])), timeout=5) as connection:
        connection.sendall(b"GET /web.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(15) == b"HTTP/1.1 200 OK"
        os.kill(program.pid, signal.SIGINT)
        said = program.communicate(timeout=10)
    assert (program.returncode, *said) == (130, "", "")


def test_another_host_is_not_answered(packages: Packages) -> None:
    """A page of another name that resolves to this machine reads nothing."""
    for host, expected in (("evil.example", 421), ("localhost:1234", 404), ("[::1]:1234", 404)):
        server = open_server(Site({}, {}), "127.0.0.1", 0)
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        try:
            connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=5)
            connection.request("GET", "/nothing", headers={"Host": host})
            assert connection.getresponse().status == expected
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
