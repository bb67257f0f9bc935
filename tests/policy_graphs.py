"""Policy graphs in onnxruntime sessions: for decoders that exist only as ports, and as the loop of a package."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from cabochon.metadata import ports
from cabochon.metadata.policies import policies
from cabochon.metadata.ports import Port, Ports

MASKS = ("anywhere", "left-justified")


def decoder(dtype: str = "float32") -> Ports:
    """A full layer of two heads of 16, and a sliding one of one head of 8."""
    ids = [Port("input_ids", "int64", ("batch", "sequence"))]
    ids += [Port("attention_mask", "int64", ("batch", "total_sequence"))]
    caches = [
        Port(f"past_key_values.{i}.{part}", dtype, ("batch", *shape))
        for i, shape in {4: (2, "past_sequence", 16), 10: (1, "sliding_past_sequence", 8)}.items()
        for part in ("key", "value")
    ]
    logits = Port("logits", dtype, ("batch", "kept", 300))
    return Ports({p.name: p for p in ids + caches}, {"logits": logits})


def session(model: ir.Model | Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    held = str(model) if isinstance(model, Path) else ir.to_proto(model).SerializeToString()
    return ort.InferenceSession(held, options, providers=["CPUExecutionProvider"])


class Policies:
    """Call a policy by its name: `p("token_to_slot", token=...)` is a dict of its outputs."""

    def __init__(self, decoder: Ports, mask: str) -> None:
        self.models = policies(decoder, mask)
        self._session = cache(lambda name: session(self.models[name]))

    def __call__(self, name: str, **feeds: Any) -> dict[str, np.ndarray]:
        ready = self._session(name)
        return dict(zip((o.name for o in ready.get_outputs()), ready.run(None, feeds), strict=True))


@cache
def graphs(mask: str = "anywhere", dtype: str = "float32") -> Policies:
    return Policies(decoder(dtype), mask)


class Loop:
    """The workflow of the specification, step by step, over a package's decoder and its policy graphs."""

    def __init__(self, package: Path) -> None:
        model = ir.load(package / "model.onnx")
        self.ports = ports.read(model)
        self.run_policy = Policies(self.ports, model.metadata_props["cabochon.mask"])
        self.decoder = session(package / "model.onnx")

    def decode(self, ids: np.ndarray, mask: np.ndarray, caches: dict[str, np.ndarray]) -> tuple[Any, Any]:
        """Logits of the last real position [B, V] in f32, and the caches of the next step."""
        feeds = {"input_ids": ids, "attention_mask": mask, "logits_to_keep": np.array(1), **caches}
        found = dict(zip(self.ports.outputs, self.decoder.run(list(self.ports.outputs), feeds), strict=True))
        logits = self.run_policy("last_token_logits", logits=found["logits"])["last_logits"]
        return logits, {name: found[name.replace("past_key_values", "present")] for name in caches}

    def __call__(
        self, prompts: list[list[int]], limits: list[int], eos: list[int], **how: Any
    ) -> list[list[int]]:
        run, rows = self.run_policy, len(prompts)

        def per_row(value: Any, dtype: Any = np.int64) -> np.ndarray:
            return np.full(rows, value, dtype)

        width = max(map(len, prompts))
        tokens = np.array([p + [0] * (width - len(p)) for p in prompts])
        most = np.array([max(limits)])
        active, done, one = per_row(True, bool), per_row(False, bool), per_row(1)
        begin = run(
            "decoder_state_initializer",
            prompt_tokens=tokens,
            prompt_lengths=np.array([len(p) for p in prompts]),
            max_iterations=most,
        )
        caches = {name: value for name, value in begin.items() if name.startswith("past_key_values.")}
        logits, caches = self.decode(tokens, begin["attention_mask"], caches)
        ends = run(
            "termination_batch_initializer",
            input_eos_ids=np.array([eos] * rows, np.int64),
            input_eos_lengths=per_row(-1),
            input_max_iterations=np.array(limits),
            fallback_max_iterations=most,
            active=active,
        )
        token, generated, cached = (begin[k] for k in ("token_slot", "generated_lengths", "cache_lengths"))
        mask, positions, counter = begin["attention_mask"], begin["body_position_ids"], per_row(0)
        emitted: list[list[int]] = [[] for _ in prompts]
        for iteration in range(most[0]):
            if not active.any():
                break
            sampled = run(
                "token_sampler",
                logits=logits,
                temperature=per_row(how.get("temperature", 1.0), np.float32),
                top_k=per_row(how.get("top_k", 1)),
                top_p=per_row(how.get("top_p", 1.0), np.float32),
                min_p=per_row(how.get("min_p", 0.0), np.float32),
                seed=np.arange(rows) + how.get("seed", 0),
                counter=counter,
                active=active,
                done=done,
            )
            now = {"active": active, "done": done}
            slot = run("token_to_slot", token=sampled["token"])["slot"]
            generated = run("generated_length_update", left=generated, right=one, **now)["total"]
            length = run("generated_length_update", left=0 * one, right=one, **now)["total"]
            token = run("token_state_update", current=token, update=slot, **now)["next"]
            ended = run(
                "termination",
                tokens=sampled["token"],
                eos_ids=ends["row_eos_ids"],
                eos_lengths=ends["eos_lengths"],
                iteration=np.array([iteration]),
                max_iterations=ends["max_iterations"],
                active=active,
            )
            for row in np.flatnonzero(active):
                emitted[row] += token[row, : length[row]].tolist()
            moved = run(
                "decoder_step_update", attention_mask=mask, logical_length=cached, position_ids=positions
            )
            cached = run("cache_length_update", left=cached, right=one, **now)["total"]
            logits, caches = self.decode(token, moved["next_attention_mask"], caches)
            mask, positions, counter = (
                moved["next_attention_mask"],
                moved["next_position_ids"],
                sampled["next_counter"],
            )
            active, done = ended["next_active"], ended["done"]
            assert ended["continue"][0] == active.any()
        assert generated.tolist() == [len(row) for row in emitted]
        assert cached.tolist() == [len(p) + len(row) for p, row in zip(prompts, emitted, strict=True)]
        return emitted
