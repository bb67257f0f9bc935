"""llama.cpp's side, for a Python that has llama-cpp-python: `python -m bench.llama quantize|serve ...`.

Knows nothing of cabochon. Caches are f16 and sliding ones hold their window alone, as llama.cpp's own server has
them; a prompt goes in batches of 512 and gives the logits of its last token.
"""

import ctypes
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.steps import serve

BATCH = 512
BUFFER = (
    1 << 30
)  # bytes that the quantizer may hold of a table; its own choice, 8 GiB, does not fit everywhere


class Llama:
    """A GGUF file in a context of its own."""

    def __init__(self, path: str, threads: int, context: int, f32: bool) -> None:
        import llama_cpp

        self.api: Any = llama_cpp
        self.api.llama_backend_init()
        chosen = self.api.llama_model_default_params()
        chosen.n_gpu_layers = 0
        self.model = self.api.llama_model_load_from_file(path.encode(), chosen)
        if not self.model:
            raise SystemExit(f"llama.cpp does not load {path}")
        vocabulary = self.api.llama_model_get_vocab(self.model)
        self.vocabulary: int = self.api.llama_vocab_n_tokens(vocabulary)
        self.context = self.api.llama_init_from_model(self.model, self._settings(threads, context, f32))
        if not self.context:
            raise SystemExit(f"llama.cpp makes no context of {context} tokens for {path}")
        self.about = f"llama-cpp-python {self.api.__version__} ({', '.join(self._features())})"

    def _features(self) -> list[str]:
        """What its kernels were compiled for."""
        said: str = self.api.llama_print_system_info().decode()
        named = (part.split(":")[-1].split("=") for part in said.split("|") if "=" in part)
        return [name.strip() for name, value in named if value.strip() == "1"]

    def _settings(self, threads: int, context: int, f32: bool) -> Any:
        settings: Any = self.api.llama_context_default_params()
        settings.n_ctx, settings.n_batch, settings.n_ubatch = context, BATCH, BATCH
        settings.n_threads = settings.n_threads_batch = threads
        settings.swa_full = False
        if f32:
            settings.type_k = settings.type_v = 0
        return settings

    def forget(self) -> None:
        self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)

    def feed(self, ids: Sequence[int]) -> np.ndarray:
        """The logits of the last token, f32 [vocabulary]."""
        for start in range(0, len(ids), BATCH):
            part = ids[start : start + BATCH]
            tokens = (ctypes.c_int32 * len(part))(*part)
            if self.api.llama_decode(self.context, self.api.llama_batch_get_one(tokens, len(part))):
                raise SystemExit(f"llama.cpp decodes no {len(part)} tokens")
        logits = self.api.llama_get_logits_ith(self.context, -1)
        return np.ctypeslib.as_array(logits, (self.vocabulary,))


def quantize(source: str, out: str, threads: int) -> None:
    """A true Q4_K_M, by llama.cpp's own quantizer with its own choices."""
    import llama_cpp

    settings: Any = llama_cpp.llama_model_quantize_default_params()
    settings.ftype, settings.nthread = llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M, threads
    settings.max_buf_size = BUFFER
    if llama_cpp.llama_model_quantize(source.encode(), out.encode(), ctypes.byref(settings)):
        raise SystemExit(f"llama.cpp does not quantize {source}")


def _silence() -> Any:
    import llama_cpp

    ignored = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(ignored, None)
    return ignored  # to be held: llama.cpp goes on calling it


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    silent = _silence()
    if command == "quantize":
        quantize(rest[0], rest[1], int(rest[2]))
    else:
        serve(lambda: Llama(rest[0], int(rest[1]), int(rest[2]), rest[3:] == ["f32"]))
