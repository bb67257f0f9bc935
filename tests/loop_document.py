"""A v1.8 document of the loop form, written down by hand from a package's ports: what onnx-genai reads and runs."""

import json
from pathlib import Path
from typing import Any

import onnx

_ROWS = {"kind": "request_aligned", "axis": 0}
_SPELLED = {
    onnx.TensorProto.FLOAT: "float32",
    onnx.TensorProto.FLOAT16: "float16",
    onnx.TensorProto.INT64: "int64",
}
_ROLES = {"input_ids": "token_ids", "attention_mask": "attention_mask", "logits": "logits"}


def write(package: Path, out: Path, **how: Any) -> Path:
    """A folder of links to the package's files, with the document beside them. JSON is YAML."""
    out.mkdir()
    for file in package.iterdir():
        if file.is_file() and not file.name.startswith("inference_metadata"):
            (out / file.name).hardlink_to(file)
    (out / "inference_metadata.yaml").write_text(json.dumps(document(package, **how), indent=1))
    return out


def document(
    package: Path, capacity: int = 256, aliasing: str = "forbidden", leave_out: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The loop: decoder and token policy, until end of sequence. `leave_out`: graph ports it does not speak of."""
    graph = onnx.load(package / "model.onnx", load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    inputs = {v.name: contract(v) for v in graph.input if v.name not in weights and v.name not in leave_out}
    outputs = {v.name: contract(v) for v in graph.output if v.name not in leave_out}
    cells = {
        name.replace("past_key_values", "kv"): name for name in inputs if name.startswith("past_key_values")
    }
    eos = json.loads((package / "generation_config.json").read_text())["eos_token_id"]
    row, flag = (
        {"dtype": "int64", "shape": ["batch"], "batch_layout": _ROWS},
        {"dtype": "bool", "shape": ["batch"], "batch_layout": _ROWS},
    )
    policy = {"token": inputs["input_ids"], "active": flag, "done": flag, "accepted_len": row}
    literal = {"role": {"kind": "opaque"}, "source": {"kind": "literal"}, "required": False}
    ours = {
        "request.input_ids": {
            "contract": inputs["input_ids"],
            "role": runtime("prompt_tokens"),
            "source": {"kind": "request"},
            "required": True,
        },
        "request.max_iterations": {
            "contract": scalar(),
            "role": runtime("max_iterations"),
            "source": {"kind": "request"},
            "required": False,
            "default": capacity,
        },
        "package.sequence_capacity": {"contract": scalar(), **literal, "default": capacity},
        "package.active": {"contract": flag, **literal, "default": True},
        "package.done": {"contract": flag, **literal, "default": False},
        "package.accepted_len": {"contract": row, **literal, "default": 0},
        "application.attention_mask": application("attention_mask", inputs["attention_mask"]),
    }
    ours |= {f"package.seed.{cell}": application(port, inputs[port]) for cell, port in cells.items()}
    state = {name: cell(policy[name], f"package.{name}") for name in ("active", "done", "accepted_len")}
    state["sequence"] = cell(inputs["input_ids"], "request.input_ids") | {
        "recurrence": {"kind": "bounded", "axis": 1, "max": "package.sequence_capacity"}
    }
    state |= {
        c: cell(inputs[port], f"package.seed.{c}")
        | {"management": "runtime", "release_boundary": "invocation", "service_group": group(inputs[port])}
        for c, port in cells.items()
    }
    present = {c: c.replace("kv", "present") for c in cells}
    decoder = {
        "implementation": {"kind": "onnx", "artifact": "model.onnx"},
        "ports": {
            "inputs": inputs,
            "outputs": outputs,
            "roles": {k: v for k, v in _ROLES.items()}
            | {k: "hidden_states" for k in outputs if k.startswith("hidden")},
        },
        "contract": {"id": "onnx-genai.autoregressive-decode", "version": "1"},
    }
    binding = {
        "implementation": {"kind": "binding"},
        "ports": {"inputs": {"logits": outputs["logits"]}, "outputs": policy},
        "contract": {"id": "onnx-genai.token-policy", "version": "1"},
    }
    given = {"input_ids": "sequence", "attention_mask": "application.attention_mask"} | {
        port: c for c, port in cells.items()
    }
    steps = [
        {
            "kind": "invoke",
            "component": "decoder",
            "inputs": {k: given[k] for k in inputs},
            "outputs": {name: f"step.{name}" for name in outputs},
        },
        {
            "kind": "invoke",
            "component": "token_policy",
            "inputs": {"logits": "step.logits"},
            "outputs": {"token": "step.token"} | {k: f"body.{k}" for k in ("active", "done", "accepted_len")},
        },
        {"kind": "emit", "value": "step.token", "output": "tokens", "mode": "append", "when": "active"},
    ]
    carried = [{"cell": c, "next": f"step.{name}"} for c, name in present.items()]
    carried += [{"cell": c, "next": f"body.{c}"} for c in ("active", "done", "accepted_len")] + [
        {"cell": "sequence", "next": "step.token"}
    ]
    loop = {
        "kind": "loop",
        "setup": [],
        "steps": steps,
        "continue_when": "active",
        "max_iterations": "request.max_iterations",
        "termination": "generation_eos",
        "carried": carried,
        "iteration": {"value": "loop.iteration", "contract": scalar()},
    }
    groups: dict[str, Any] = {}
    for c, port in cells.items():
        name = group(inputs[port])
        found = groups.setdefault(
            name,
            {
                "kind": name,
                "sequence_axis": 2,
                "layout": "bnsh",
                "aliasing": aliasing,
                "update": {"kind": "append"},
                "reuse": {"prefix_reusable": True, "evictable_prefix": name.startswith("sliding")},
                "ports": {"decoder": {}},
            },
        )
        _, layer, part = c.split(".")
        found["ports"]["decoder"][c] = {
            "input": port,
            "output": present[c],
            "role": part,
            "layer": int(layer),
        }
    return {
        "schema_version": "v1.8",
        "model": {"max_sequence_length": capacity},
        "package": {
            "tokenizer": {"special_tokens": {"eos_token_id": eos if isinstance(eos, list) else [eos]}}
        },
        "pipeline": {
            "workflow": {
                "manifest": {},
                "publication_mode": "commit_only",
                "inputs": ours,
                "outputs": {
                    "tokens": {
                        "contract": inputs["input_ids"],
                        "role": "tokens",
                        "family": {"kind": "materialized"},
                        "stage": "pre_adapter",
                    }
                },
                "components": {"decoder": decoder, "token_policy": binding},
                "state": state,
                "serving": {
                    "active": "active",
                    "done": "done",
                    "accepted_len": "accepted_len",
                    "state_service": {"groups": groups},
                },
                "steps": [loop],
            }
        },
    }


def contract(v: onnx.ValueInfoProto) -> dict[str, Any]:
    t = v.type.tensor_type
    shape = [d.dim_param or d.dim_value for d in t.shape.dim]
    return {"dtype": _SPELLED[t.elem_type], "shape": shape} | ({"batch_layout": _ROWS} if shape else {})


def scalar() -> dict[str, Any]:
    return {"dtype": "int64", "shape": [1]}


def runtime(role: str) -> dict[str, Any]:
    return {"kind": "runtime", "version": "1.0", "role": role}


def application(port: str, c: dict[str, Any]) -> dict[str, Any]:
    return {
        "contract": c,
        "role": {"kind": "opaque"},
        "source": {"kind": "application", "name": port},
        "required": True,
        "externally_suppliable": True,
    }


def cell(c: dict[str, Any], initializer: str) -> dict[str, Any]:
    return {
        "contract": c,
        "scope": "invocation",
        "initializer": initializer,
        "recurrence": {"kind": "invariant"},
    }


def group(c: dict[str, Any]) -> str:
    return "sliding_attention" if c["shape"][2].startswith("sliding") else "full_attention"
