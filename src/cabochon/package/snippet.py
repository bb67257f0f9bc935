"""The few lines of Python in a card that run the package with ONNX Runtime alone."""

from collections import Counter

from cabochon.package.contracts import Port, owners
from cabochon.package.facts import TextFacts

__all__ = ["snippet"]

_BFLOAT16 = 16  # onnx.TensorProto.BFLOAT16


def snippet(facts: TextFacts) -> str:
    """Python that feeds a prompt and prints the next token. It runs in the package's folder."""
    ports = owners(facts.model)
    common, _ = Counter(ports.values()).most_common(1)[0]
    others = {layer: port for layer, port in ports.items() if port != common}
    layers = f"range({len(ports)})" if list(ports) == list(range(len(ports))) else str(list(ports))
    return "\n".join(
        [
            "import numpy as np",
            "import onnxruntime as ort",
            *_ids(facts),
            "",
            f'session = ort.InferenceSession("model.onnx", providers=["{facts.target.provider}"])',
            'feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids)}',
            *_sizes(common, others),
            f"for layer in {layers}:",
            f"    heads, size = {'sizes.get(layer, ' + str(common) + ')' if others else str(common)}",
            f"    past = np.zeros((1, heads, 0, size), np.{_numpy_name(facts)})",
            '    feeds[f"past_key_values.{layer}.key"] = feeds[f"past_key_values.{layer}.value"] = past',
            *_run(facts),
            "",
        ]
    )


def _ids(facts: TextFacts) -> list[str]:
    if "tokenizer.json" in facts.checkpoint.files:
        return [
            "from tokenizers import Tokenizer",
            "",
            'tokenizer = Tokenizer.from_file("tokenizer.json")',
            'ids = np.array([tokenizer.encode("Why is the sky blue?").ids], np.int64)  # [1, S]',
        ]
    return ["", "ids = np.array([[2]], np.int64)  # [1, S]: your token ids, the first one is <bos>"]


def _sizes(common: Port, others: dict[int, Port]) -> list[str]:
    if not others:
        return []
    return [f"sizes = {others}  # heads and head size of these layers, else {common}"]


def _numpy_name(facts: TextFacts) -> str:
    return "uint16" if facts.dtype == "bfloat16" else facts.dtype


def _run(facts: TextFacts) -> list[str]:
    positions = {0: "S", 1: "1"}.get(facts.logits_to_keep, "kept")
    shape = f"# [1, {positions}, {facts.config.vocab}]"
    if facts.dtype != "bfloat16":
        return [
            f'logits = session.run(["logits"], feeds)[0]  {shape}',
            "print(int(logits[0, -1].argmax()))  # the next token",
        ]
    return [
        "# numpy has no bfloat16: its bits travel as uint16",
        f"values = {{name: ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, {_BFLOAT16})",
        "          if array.dtype == np.uint16 else ort.OrtValue.ortvalue_from_numpy(array)",
        "          for name, array in feeds.items()}",
        f'logits = session.run_with_ort_values(["logits"], values)[0]  {shape}',
    ]
