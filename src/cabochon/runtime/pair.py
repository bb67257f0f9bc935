"""A target and its drafter on disk: the drafter's graph in the folder itself, the target's package within it."""

from pathlib import Path

from cabochon.errors import PackageError
from cabochon.runtime.folder import DECODERS, decoder_file, read_object
from cabochon.runtime.ports import DRAFTER
from cabochon.runtime.session import peek

TARGET = "target"
SETTINGS = "assistant_generation_config.json"


def is_pair(path: Path) -> bool:
    """True for a drafter with its target; raise PackageError for one without."""
    graph = path / "model.onnx"
    if not graph.is_file() or peek(graph, "model") != DRAFTER:
        return False
    for needed in (decoder_file(path / TARGET) or path / TARGET / DECODERS[0], path / "token_embedding.onnx"):
        if not needed.is_file():
            raise PackageError(
                f"a drafter without {needed.relative_to(path)}; expected a pair, as a drafter generates nothing alone",
                at=str(path),
                remedy="build the pair with `cabochon build TARGET OUT --assistant ASSISTANT`",
            )
    return True


def num_assistant_tokens(path: Path) -> int | None:
    """How many tokens the drafter's makers propose in a round; None where they do not say."""
    return read_object(path / SETTINGS, ["num_assistant_tokens"]).get("num_assistant_tokens")
