"""A target with an assistant in small: two stub graphs whose ports are those of a real pair, and their document.

Layers 0 and 1 of the target slide, 2 and 3 see everything; the assistant borrows from 1 and 3.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from broken import Break, codes
from cabochon.metadata import yaml
from cabochon.validation import Verdict, validate

HIDDEN, VOCABULARY, SIZES = 8, 32, {0: 16, 1: 16, 2: 32, 3: 32}
KINDS = {0: "sliding_attention", 1: "sliding_attention", 2: "full_attention", 3: "full_attention"}
PARTS = ("key", "value")
LENGTHS = {"sliding_attention": "sliding_past_sequence", "full_attention": "past_sequence"}
SELECT = ("PRT", "STA", "SPC", "REF", "SCH003")
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
SCALE = 2.828125
Port = tuple[str, int, list[Any]]


def target_ports() -> tuple[list[Port], list[Port]]:
    caches = [(i, part) for i in SIZES for part in PARTS]
    inputs = [("input_ids", INT, ["batch", "sequence"]), ("attention_mask", INT, ["batch", "total_sequence"])]
    outputs = [
        ("logits", FLOAT, ["batch", "sequence", VOCABULARY]),
        ("hidden_states.3", FLOAT, ["batch", "sequence", HIDDEN]),
    ]
    for i, part in caches:
        length = LENGTHS[KINDS[i]]
        inputs.append((f"past_key_values.{i}.{part}", FLOAT, ["batch", 1, length, SIZES[i]]))
        outputs.append(
            (f"present.{i}.{part}", FLOAT, ["batch", 1, length.replace("past", "present"), SIZES[i]])
        )
    return inputs, outputs


def assistant_ports(vocabulary: int = VOCABULARY) -> tuple[list[Port], list[Port]]:
    inputs = [
        ("inputs_embeds", FLOAT, ["batch", "q", 2 * HIDDEN]),
        ("attention_mask", INT, ["batch", "kv_sequence"]),
    ]
    for i in (1, 3):
        length = LENGTHS[KINDS[i]].replace("past", "kv")
        inputs += [(f"shared_kv.{KINDS[i]}.{part}", FLOAT, ["batch", 1, length, SIZES[i]]) for part in PARTS]
    return inputs, [
        ("logits", FLOAT, ["batch", "q", vocabulary]),
        ("projected_state", FLOAT, ["batch", "q", HIDDEN]),
    ]


def target() -> onnx.ModelProto:
    """Rows of the table, scaled, are the hidden states; every cache grows by what the rows give."""
    table = np.zeros((VOCABULARY, HIDDEN), np.float32)
    weights = {"model.embed_tokens.weight": table, "scale": np.float32(SCALE)}
    nodes = [
        helper.make_node("Gather", ["model.embed_tokens.weight", "input_ids"], ["rows"]),
        helper.make_node("Mul", ["rows", "scale"], ["hidden_states.3"]),
        helper.make_node("Transpose", ["model.embed_tokens.weight"], ["head"], perm=[1, 0]),
        helper.make_node("MatMul", ["hidden_states.3", "head"], ["logits"]),
    ]
    for i, size in SIZES.items():
        weights[f"make.{i}"] = np.zeros((HIDDEN, size), np.float32)
        nodes.append(helper.make_node("MatMul", ["hidden_states.3", f"make.{i}"], [f"new.{i}"]))
        nodes.append(helper.make_node("Unsqueeze", [f"new.{i}", "one"], [f"head.{i}"]))
        for part in PARTS:
            names = [f"past_key_values.{i}.{part}", f"head.{i}"]
            nodes.append(helper.make_node("Concat", names, [f"present.{i}.{part}"], axis=2))
    return model(nodes, weights | {"one": np.array([1])}, *target_ports())


def assistant(vocabulary: int = VOCABULARY) -> onnx.ModelProto:
    weights = {
        "head": np.zeros((2 * HIDDEN, vocabulary), np.float32),
        "back": np.zeros((2 * HIDDEN, HIDDEN), np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["inputs_embeds", "head"], ["logits"]),
        helper.make_node("MatMul", ["inputs_embeds", "back"], ["projected_state"]),
    ]
    return model(nodes, weights, *assistant_ports(vocabulary))


def model(
    nodes: Any, weights: dict[str, np.ndarray], inputs: list[Port], outputs: list[Port]
) -> onnx.ModelProto:
    infos = [[helper.make_tensor_value_info(*port) for port in ports] for ports in (inputs, outputs)]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "stub", *infos, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


def contract(kind: int, shape: list[Any]) -> dict[str, Any]:
    return {
        "dtype": {FLOAT: "float32", INT: "int64", TensorProto.BOOL: "bool"}[kind],
        "rank": len(shape),
        "shape": list(shape),
        "batch_layout": {"kind": "request_aligned", "axis": 0},
    }


def supplied(name: str, kind: int, shape: list[Any]) -> dict[str, Any]:
    source = {"kind": "application", "name": name}
    return {"contract": contract(kind, shape), "role": {"kind": "opaque"}, "source": source, "required": True}


def component(
    artifact: str, inputs: list[Port], outputs: list[Port], roles: dict[str, str]
) -> dict[str, Any]:
    sides = [{name: contract(kind, shape) for name, kind, shape in ports} for ports in (inputs, outputs)]
    ports = {"inputs": sides[0], "outputs": sides[1], "roles": roles}
    return {"implementation": {"kind": "onnx", "artifact": artifact}, "ports": ports}


def document() -> dict[str, Any]:
    """The whole document in the form v1."""
    cells = {f"kv.{i}.{part}": (i, part) for i in SIZES for part in PARTS}
    shapes = {name: shape for name, _, shape in target_ports()[0]}
    batch = {"active": TensorProto.BOOL, "done": TensorProto.BOOL, "accepted_len": INT}
    inputs = {f"request.{name}": supplied(name, kind, ["batch"]) for name, kind in batch.items()}
    ids = supplied("input_ids", INT, ["batch", "sequence"])
    inputs["request.input_ids"] = ids | {
        "role": {"kind": "runtime", "version": "1.0", "role": "prompt_tokens"},
        "source": {"kind": "request"},
    }
    inputs["request.attention_mask"] = supplied("attention_mask", INT, ["batch", "total_sequence"])
    inputs["request.shared_mask"] = supplied("shared_mask", INT, ["batch", "past_sequence"])
    inputs["request.inputs_embeds"] = supplied("inputs_embeds", FLOAT, ["batch", "q", 2 * HIDDEN])
    for cell, (i, part) in cells.items():
        name = f"past_key_values.{i}.{part}"
        inputs[f"request.{cell}"] = supplied(name, FLOAT, shapes[name])
    state = {
        cell: {
            "contract": contract(FLOAT, shapes[f"past_key_values.{i}.{part}"]),
            "scope": "invocation",
            "initializer": f"request.{cell}",
            "recurrence": {"kind": "invariant"},
            "management": "runtime",
            "release_boundary": "invocation",
            "service_group": KINDS[i],
        }
        for cell, (i, part) in cells.items()
    }
    workflow = {
        "manifest": {"capabilities": ["workflow_ssa", "typed_emit", "serving_service_contract"]},
        "inputs": inputs,
        "outputs": {
            "logits": {
                "contract": contract(FLOAT, ["batch", "sequence", VOCABULARY]),
                "role": "tensor",
                "stage": "pre_adapter",
            }
        },
        "components": {
            "target": component(
                "target/model.onnx",
                *target_ports(),
                {
                    "input_ids": "token_ids",
                    "attention_mask": "attention_mask",
                    "logits": "logits",
                    "hidden_states.3": "hidden_states",
                },
            ),
            "assistant": component(
                "assistant/model.onnx",
                *assistant_ports(),
                {"inputs_embeds": "inputs_embeds", "attention_mask": "attention_mask", "logits": "logits"},
            ),
        },
        "state": state,
        "steps": steps(cells),
        "serving": {name: f"request.{name}" for name in batch}
        | {"state_service": {"groups": {kind: group(kind, cells) for kind in LENGTHS}}},
    }
    return {
        "schema_version": "v1",
        "pipeline": {"workflow": workflow},
        "speculative": speculative(list(cells)),
    }


def steps(cells: dict[str, tuple[int, str]]) -> list[dict[str, Any]]:
    shared = {f"shared_kv.{KINDS[i]}.{part}": f"request.kv.{i}.{part}" for i in (1, 3) for part in PARTS}
    past = {f"past_key_values.{i}.{part}": f"request.{cell}" for cell, (i, part) in cells.items()}
    present = {f"present.{i}.{part}": f"target.{cell}" for cell, (i, part) in cells.items()}
    return [
        {
            "kind": "invoke",
            "component": "assistant",
            "inputs": {"inputs_embeds": "request.inputs_embeds", "attention_mask": "request.shared_mask"}
            | shared,
            "outputs": {"logits": "draft.logits", "projected_state": "draft.projected_state"},
        },
        {
            "kind": "invoke",
            "component": "target",
            "inputs": {"input_ids": "request.input_ids", "attention_mask": "request.attention_mask"} | past,
            "outputs": {"logits": "target.logits", "hidden_states.3": "target.hidden"} | present,
        },
        {"kind": "emit", "value": "target.logits", "output": "logits", "mode": "replace"},
    ]


def group(kind: str, cells: dict[str, tuple[int, str]]) -> dict[str, Any]:
    own = {
        cell: {
            "input": f"past_key_values.{i}.{part}",
            "output": f"present.{i}.{part}",
            "role": part,
            "layer": i,
        }
        for cell, (i, part) in cells.items()
        if KINDS[i] == kind
    }
    last = max(i for i in KINDS if KINDS[i] == kind)
    borrowed = {
        f"kv.{last}.{part}": {"input": f"shared_kv.{kind}.{part}", "access": "read_only", "role": part}
        for part in PARTS
    }
    return {
        "kind": kind,
        "sequence_axis": 2,
        "layout": "bnsh",
        "aliasing": "forbidden",
        "update": {"kind": "append"},
        "reuse": {"prefix_reusable": True, "evictable_prefix": kind == "sliding_attention"},
        "capabilities": {"rollback_positions": 4, "snapshot": True, "fork": True},
        "ports": {"target": own, "assistant": borrowed},
    }


def speculative(cells: list[str]) -> dict[str, Any]:
    return {
        "proposer": "assistant",
        "target": "target",
        "proposal_execution": {
            "kind": "chained",
            "token_embedding_input": "inputs_embeds",
            "logits_output": "logits",
            "folded_carry_output": "projected_state",
            "folded_carry_seed": {"component": "target", "output": "hidden_states.3"},
            "token_embedding": {"component": "target", "table": "model.embed_tokens.weight"},
        },
        "port_bindings": {"target_hidden_context": "inputs_embeds"},
        "shared_state": list(LENGTHS),
        "vocabulary": {"kind": "identical"},
        "max_proposal_width": 4,
        "distribution_preserving": True,
        "rollback_state": cells,
    }


def write(folder: Path) -> Path:
    """The package in `folder`/package."""
    package = folder / "package"
    for name, proto in (("target", target()), ("assistant", assistant())):
        (package / name).mkdir(parents=True)
        (package / name / "model.onnx").write_bytes(proto.SerializeToString())
    (package / "inference_metadata.yaml").write_bytes(yaml.write(document()))
    return package


def judged(package: Path) -> Verdict:
    """What the rules on documents and ports find."""
    return validate(package, quick=True, select=SELECT)


def check(broken: Break, folder: Path) -> Verdict:
    """Break a pair, validate it, compare the codes."""
    package = write(folder)
    broken.how(package)
    verdict = judged(package)
    assert codes(verdict) == broken.codes, "\n".join(map(str, verdict.findings))
    return verdict
