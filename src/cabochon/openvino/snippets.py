"""The few lines of Python in a card that run a converted package with OpenVINO alone. They run in its folder."""

from collections.abc import Iterator

from cabochon.openvino.made import Made
from cabochon.openvino.source import FILES

__all__ = ["plugin_snippet", "snippet"]


def snippet(made: Made) -> str:
    """Python that makes one step and prints the next token."""
    return "\n".join(_drafter(made) if made.source.kind in ("drafter", "pair") else _decoder(made)) + "\n"


def _decoder(made: Made) -> Iterator[str]:
    file, folder = FILES[made.target], "decoder/" if made.source.kind == "full" else ""
    ids = made.nets["embedding" if folder else ""].ports.inputs
    yield "import numpy as np"
    yield "import openvino as ov"
    yield from _ids(made)
    yield ""
    yield f'model = ov.compile_model("{folder}{file}", "CPU")'
    if folder:
        yield f'embedding = ov.compile_model("embedding/{file}", "CPU")'
        features = ", ".join(
            f'"{name}": {_array([0, port.shape[-1]], port.dtype)}'
            for name, port in ids.items()
            if name != "input_ids"
        )
        yield f'made = embedding({{"input_ids": ids{", " + features if features else ""}}})'
        taken = [name for name in made.decoder.ports.inputs if name in made.nets["embedding"].ports.outputs]
        named = ", ".join(f'"{name}": {_passed(made, name)}' for name in taken)
        more = '"input_ids": ids, ' if "input_ids" in made.decoder.ports.inputs else ""
        yield f'feeds = {{{named}, {more}"attention_mask": np.ones_like(ids)}}'
    else:
        yield 'feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids)}'
    if "logits_to_keep" in made.decoder.ports.inputs:
        yield 'feeds["logits_to_keep"] = np.array(1)  # the logits of the last token'
    if not made.stateful:
        yield "for port in model.inputs:"
        yield '    if port.any_name.startswith("past_key_values."):'
        yield "        _, heads, _, size = port.partial_shape"
        yield "        empty = [1, heads.get_length(), 0, size.get_length()]"
        yield "        feeds[port.any_name] = ov.Tensor(port.element_type, empty)"
    yield 'logits = model(feeds)["logits"]'
    yield from _token(made)


def _drafter(made: Made) -> Iterator[str]:
    yield "import numpy as np"
    yield "import openvino as ov"
    yield ""
    yield f'model = ov.compile_model("{FILES[made.target]}", "CPU")'
    yield "seen = 3  # tokens of the target; zeros stand for its keys, values and hidden states"
    yield 'feeds = {"attention_mask": np.ones((1, seen), np.int64)}'
    yield "for port in model.inputs:"
    yield "    shape = [d.get_length() if d.is_static else n for d, n in zip(port.partial_shape, (1, 1, seen, 1))]"
    yield "    feeds.setdefault(port.any_name, ov.Tensor(port.element_type, shape))"
    yield "made = model(feeds)"
    yield 'logits = made["logits"]  # made["projected_state"] goes into the next step'
    yield from _token(made)


def plugin_snippet(made: Made) -> str:
    """Python that loads the EPContext node with ONNX Runtime."""
    folder = "decoder/" if made.source.kind == "full" else ""
    return "\n".join(
        [
            "import onnxruntime as ort",
            "import onnxruntime_ep_openvino as plugin",
            "",
            'ort.register_execution_provider_library("openvino", plugin.get_library_path())',
            "devices = [device for device in ort.get_ep_devices() if device.ep_name == plugin.get_ep_name()]",
            "options = ort.SessionOptions()",
            "options.add_provider_for_devices(devices[:1], {})",
            f'session = ort.InferenceSession("{folder}model.onnx", options)',
            "",
        ]
    )


def _ids(made: Made) -> Iterator[str]:
    if "tokenizer.json" not in made.travelled:
        yield ""
        yield "ids = np.array([[2]], np.int64)  # [1, S]: your token ids, the first one is <bos>"
        return
    yield "from tokenizers import Tokenizer"
    yield ""
    yield 'tokenizer = Tokenizer.from_file("tokenizer.json")'
    yield 'ids = np.array([tokenizer.encode("Why is the sky blue?").ids], np.int64)  # [1, S]'


def _array(shape: list[int | str], dtype: str) -> str:
    if dtype == "bfloat16":
        return f"ov.Tensor(ov.Type.bf16, {shape})"
    return f"np.zeros({tuple(shape)}, np.{dtype})"


def _passed(made: Made, name: str) -> str:
    """An output of the embedding on its way into the decoder; bf16 is no type of numpy."""
    if made.activations != "bf16":
        return f'made["{name}"]'
    return f'ov.Tensor(made["{name}"].view(np.uint16), made["{name}"].shape, ov.Type.bf16)'


def _token(made: Made) -> Iterator[str]:
    if made.activations == "bf16":
        yield "logits = (logits.view(np.uint16).astype(np.uint32) << 16).view(np.float32)  # numpy has no bf16"
    yield "print(int(logits[0, -1].argmax()))  # the next token"
