"""The program `cabochon`, for many commands of a shell: each runs in a process of its own, forked from one that has
imported the libraries. To start Python and import them anew takes two seconds for each command; one test of the command
line, and those of the wheel, do.

    with programs(folder):  # folder/cabochon is the program
        subprocess.run("cabochon --version | wc", shell=True, ...)
"""

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

# Sends its arguments, folder, environment and standard files, and waits for the exit code.
PROGRAM = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as to:
    to.connect({address!r})
    said = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(to, [len(said).to_bytes(8, "big")], [0, 1, 2])
    to.sendall(said)
    code = to.recv(1)
os._exit(code[0] if code else 70)
"""
SERVER = """
import json, os, socket, sys, traceback
import jinja2.sandbox, numpy.random, onnx.reference, onnx_ir, onnxruntime, PIL.Image, pydantic, rich.console, tokenizers
import ruamel.yaml, typer, yaml
assert "cabochon" not in sys.modules

def run(of):
    size, given, _, _ = socket.recv_fds(of, 8, 3)
    said = b""
    while len(said) < int.from_bytes(size, "big"):
        said += of.recv(1 << 16)
    arguments, folder, environment = json.loads(said)
    for file, number in zip(given, range(3)):
        os.dup2(file, number)
        os.close(file)
    sys.stdin, sys.stdout, sys.stderr = (open(number, mode) for number, mode in enumerate("rww"))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv, code = ["cabochon", *arguments], 0
    try:
        from cabochon.cli import main
        main()
    except SystemExit as left:
        code = int(left.code or 0)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code

with socket.socket(socket.AF_UNIX) as listening:
    listening.bind(sys.argv[1])
    listening.listen()
    print("ready", flush=True)
    while True:
        of, _ = listening.accept()
        if child := os.fork():
            of.close()
            continue
        if program := os.fork():
            of.sendall(bytes([os.waitstatus_to_exitcode(os.waitpid(program, 0)[1]) & 255]))
            os._exit(0)
        os._exit(run(of))
"""


@contextmanager
def programs(folder: Path) -> Generator[None]:
    """Make `folder`/cabochon, which works until the block ends."""
    with TemporaryDirectory() as place:  # the address of a socket is short
        address, program = f"{place}/socket", folder / "cabochon"
        program.write_text(PROGRAM.format(python=sys.executable, address=address))
        program.chmod(0o755)
        command = [sys.executable, "-c", SERVER, address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None and server.stdout.readline() == "ready\n"
            try:
                yield
            finally:
                server.kill()
