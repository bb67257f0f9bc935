"""onnx-genai's command in a process of its own for each prompt with files: its Python takes none."""

import subprocess
import sys
from typing import Any

from cabochon.clients.programs.telling import asked, told

_MAIN = "import sys; from onnx_genai_server import main; sys.exit(main())"


def main() -> None:
    """Answer every prompt; what is printed is the answer, what is said beside it the reason why there is none."""
    request = asked()
    for trial in request["trials"]:
        told(trial["name"], lambda trial=trial: _answered(request, trial))


def _answered(request: dict[str, Any], trial: dict[str, Any]) -> dict[str, str]:
    media = [word for kind in ("image", "audio") for path in trial[kind] for word in (f"--{kind}", path)]
    how = ["generate", "--greedy", "--raw", "--max-new-tokens", str(request["tokens"]), *media]
    command = [sys.executable, "-c", _MAIN, *how, request["folder"], trial["text"]]
    ended = subprocess.run(
        command, capture_output=True
    )  # read as text, a carriage return would be a line feed
    answer, words = (printed.decode(errors="replace") for printed in (ended.stdout, ended.stderr))
    if ended.returncode:
        raise RuntimeError(words.rpartition("error: ")[2].strip() or f"exit code {ended.returncode}")
    return {"text": answer.removesuffix("\n")}


if __name__ == "__main__":
    main()
