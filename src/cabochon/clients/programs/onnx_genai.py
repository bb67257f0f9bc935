"""onnx-genai in a process of its own: loads a folder, tokenizes and answers a prompt."""

from typing import Any

import onnx_genai

from cabochon.clients.programs.telling import asked, told


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
