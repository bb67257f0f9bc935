"""A target and its drafter on disk: the drafter's graph in the folder itself, the target's package within it."""

from pathlib import Path

from cabochon.errors import PackageError
from cabochon.runtime.folder import DECODERS, decoder_file, graph_file, read_object
from cabochon.runtime.ports import DRAFTER
from cabochon.runtime.properties import IR, peek

TARGET = "target"
SETTINGS = "assistant_generation_config.json"


def is_pair(path: Path) -> bool:
    """True for a drafter with its target; raise PackageError for one without."""
    graph = graph_file(path)
    if graph is None or peek(graph, "model") != DRAFTER:
        return False
    for needed in (decoder_file(path / TARGET) or path / TARGET / DECODERS[0], embedding_file(graph)):
        if not needed.is_file():
            raise PackageError(
                f"a drafter without {needed.relative_to(path)}; expected a pair, as a drafter generates nothing alone",
                at=str(path),
                remedy="build the pair with `cabochon build TARGET OUT --assistant ASSISTANT`",
            )
    return True


def embedding_file(drafter: Path) -> Path:
    """The look-up of the target's tokens beside a drafter's graph; OpenVINO's, which is two files, has a folder."""
    if drafter.suffix == IR:
        return drafter.parent / "token_embedding" / drafter.name
    return drafter.with_name("token_embedding.onnx")


def num_assistant_tokens(path: Path) -> int | None:
    """How many tokens the drafter's makers propose in a round; None where they do not say."""
    return read_object(path / SETTINGS, ["num_assistant_tokens"]).get("num_assistant_tokens")
