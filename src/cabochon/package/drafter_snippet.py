"""The few lines of Python in a card that run one step of a drafter with ONNX Runtime alone."""

from collections.abc import Iterator

from cabochon.package.facts import DrafterFacts

__all__ = ["drafter_snippet"]

_BFLOAT16 = 16  # onnx.TensorProto.BFLOAT16
_NAMES = {"full_attention": "full", "sliding_attention": "sliding"}


def drafter_snippet(facts: DrafterFacts) -> str:
    """Python that makes one step and prints the token drafted. It runs in the package's folder."""
    return "\n".join(_lines(facts)) + "\n"


def _lines(facts: DrafterFacts) -> Iterator[str]:
    drafter, bf16 = facts.drafter, facts.dtype == "bfloat16"
    dtype = "uint16" if bf16 else facts.dtype
    width = 2 * drafter.backbone
    yield "import numpy as np, onnxruntime as ort"
    yield ""
    yield "kv_len = 3  # what the target has seen; these zeros stand for its keys, values and hidden states"
    yield f"inputs_embeds = np.zeros((1, 1, {width}), np.{dtype})  # [1, q, {width}]: scaled embedding, hidden state"
    for kind, port in drafter.kinds.items():
        shape = f"(1, {port.shape[1]}, kv_len, {port.shape[3]})"
        names = f"skv_{_NAMES[kind]}_k = skv_{_NAMES[kind]}_v"
        yield f"{names} = np.zeros({shape}, np.{dtype})"
    yield ""
    yield f's = ort.InferenceSession("model.onnx", providers=["{facts.target.provider}"])'
    yield "feeds = {" if bf16 else 'out = s.run(["logits", "projected_state"], {'
    yield from _feeds(facts)
    yield "}" if bf16 else "})"
    if bf16:
        yield "# numpy has no bfloat16: its bits travel as uint16"
        yield f"values = {{name: ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, {_BFLOAT16})"
        yield "          if array.dtype == np.uint16 else ort.OrtValue.ortvalue_from_numpy(array)"
        yield "          for name, array in feeds.items()}"
        yield 'out = s.run_with_ort_values(["logits", "projected_state"], values)'
    else:
        yield "print(int(out[0][0, -1].argmax()))  # the token drafted; out[1] goes into the next step"


def _feeds(facts: DrafterFacts) -> Iterator[str]:
    yield '    "inputs_embeds": inputs_embeds,'
    yield '    "attention_mask": np.ones((1, kv_len), np.int64),'
    for each in facts.drafter.borrowed:
        yield f'    "{each.port.name}": skv_{_NAMES[each.kind]}_{each.part[0]},'
