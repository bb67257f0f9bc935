"""onnx-genai in a process of its own: loads a folder, tokenizes and answers a prompt."""

from importlib import import_module
from typing import Any

from cabochon.clients.programs.telling import asked, told

onnx_genai: Any = import_module("onnx_genai")  # not typed, and absent where types are checked


def main() -> None:
    """Load, tokenize, generate; what builds on something that failed is not tried."""
    request = asked()
    engine = told("load", lambda: onnx_genai.Engine.from_dir(request["folder"]))
    if engine is None:
        return
    told("tokenize", lambda: list(engine.tokenize(request["prompt"])))
    told("generate", lambda: _generate(engine, request))


def _generate(engine: Any, request: dict[str, Any]) -> dict[str, Any]:
    found = engine.generate(request["prompt"], max_tokens=request["tokens"], temperature=0.0)
    return {"ids": list(found.token_ids), "finish": str(found.finish_reason)}


if __name__ == "__main__":
    main()
