"""Rules on speculation, on a pair of stub graphs with the ports of a real one, and on a real one."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import pair_package
from broken import (
    Break,
    all_of,
    check,
    edit_document,
    edit_graph,
    edit_json,
    groups,
    remove,
    workflow,
    write_document,
)
from cabochon.validation import validate
from packages import Packages

Document = dict[str, Any]
FULL = "full_attention"


def chain(**changes: Any) -> Callable[[Path], object]:
    return edit_document(lambda d: d["speculative"]["proposal_execution"].update(changes))


def said(**changes: Any) -> Callable[[Path], object]:
    return edit_document(lambda d: d["speculative"].update(changes))


def pruned(package: Path) -> None:
    """An assistant with ten tokens only."""
    proto = pair_package.assistant(10)
    (package / "assistant" / "model.onnx").write_bytes(proto.SerializeToString())
    edit_document(
        lambda d: workflow(d)["components"]["assistant"]["ports"]["outputs"]["logits"]["shape"].__setitem__(
            2, 10
        )
    )(package)


def without(*keys: str) -> Callable[[Path], object]:
    def change(document: Document) -> None:
        for key in keys:
            del document["speculative"]["proposal_execution"][key]

    return edit_document(change)


def fused(width: int) -> Callable[[Path], object]:
    """Document and graph with another width of the fused input: nothing else could say so."""

    def how(package: Path) -> None:
        file = package / "assistant" / "model.onnx"
        proto = pair_package.assistant()
        proto.graph.input[0].type.tensor_type.shape.dim[2].dim_value = width
        file.write_bytes(proto.SerializeToString())

        def change(document: Document) -> None:
            ports = workflow(document)["components"]["assistant"]["ports"]["inputs"]
            ports["inputs_embeds"]["shape"][2] = width
            workflow(document)["inputs"]["request.inputs_embeds"]["contract"]["shape"][2] = width

        edit_document(change)(package)

    return how


def effect(document: Document) -> None:
    workflow(document)["effects"] = {
        "log": {"retry": "idempotent", "speculation_safety": {"kind": "rewindable", "max_depth": 2}}
    }
    workflow(document)["components"]["target"] |= {
        "effects": ["log"],
        "row_scope": {"axis": 0, "stateful": True},
    }
    workflow(document)["manifest"]["capabilities"].append("linear_effects")


def recurrent(document: Document) -> None:
    """A cell that the assistant is said to carry, but does not advance."""
    execution = document["speculative"]["proposal_execution"]
    execution["recurrent"] = [{"state": "kv.3.key", "input": "inputs_embeds", "output": "projected_state"}]


def newer(scale: float | None) -> Callable[[Path], object]:
    """The same section under a version that knows the scale."""

    def change(document: Document) -> None:
        document["schema_version"] = "v1.8"
        document["speculative"]["proposal_execution"]["token_embedding"] |= {"scale": scale} if scale else {}

    return edit_document(change)


def seed(output: str) -> Callable[[Path], object]:
    return chain(folded_carry_seed={"component": "target", "output": output})


def table(name: str) -> Callable[[Path], object]:
    return chain(token_embedding={"component": "target", "table": name})


def shorter(document: Document) -> None:
    groups(document)[FULL]["capabilities"]["rollback_positions"] = 3


BREAKS = (
    Break("an unknown proposer", said(proposer="drafter"), {"SPC001", "SPC010"}),
    Break("a proposer that is the target", said(proposer="target", shared_state=[]), {"SPC001", "SPC002"}),
    Break("an unknown port", chain(folded_carry_output="state"), {"SPC002"}),
    Break("no seed", without("folded_carry_seed"), {"SPC003"}),
    Break("no table", without("token_embedding"), {"SPC003"}),
    Break("nothing carried", without("folded_carry_output"), {"SPC003"}),
    Break("no destination", said(port_bindings={}), {"SPC003"}),
    Break(
        "the assistant's own table",
        chain(token_embedding={"component": "assistant", "table": "head"}),
        {"SPC003", "SPC004", "SPC006"},
    ),
    Break("an unknown table", table("embed.weight"), {"SPC004"}),
    Break("a constant for a table", table("scale"), {"SPC004"}),
    Break("logits for a seed", seed("logits"), {"SPC005"}),
    Break("a cache for a seed", seed("present.0.key"), {"SPC005"}),
    Break("a fused width of one half", fused(8), {"SPC006"}),
    Break("rows that are not scaled", newer(None), {"SPC007"}),
    Break("rows scaled otherwise", newer(pair_package.HIDDEN), {"SPC007"}),
    Break(
        "a cell that does not roll back",
        edit_document(lambda d: d["speculative"]["rollback_state"].pop()),
        {"SPC008"},
    ),
    Break("nothing rolls back", said(rollback_state=[]), {"SPC008"}),
    Break("a group that cannot roll back so far", edit_document(shorter), {"SPC009"}),
    Break("a group that is shared and not named", said(shared_state=[FULL]), {"SPC010"}),
    Break("a group that there is not", said(shared_state=[FULL, "sliding_attention", "cross"]), {"SPC010"}),
    Break("a weight that there is not", said(shared_weights=["lm_head.weight"]), {"SPC011"}),
    Break("another vocabulary", pruned, {"SPC012"}),
    Break("a subset that is all", said(vocabulary={"kind": "subset", "proposer_vocab_size": 10}), {"SPC012"}),
    Break("a map that is missing", said(vocabulary={"kind": "mapped", "artifact": "map.bin"}), {"SPC013"}),
    Break("an effect that cannot be undone so far", edit_document(effect), {"SPC014"}),
    Break("a cell that the proposer does not advance", edit_document(recurrent), {"SPC015"}),
)


@pytest.mark.parametrize("broken", BREAKS, ids=str)
def test_a_broken_pair_is_found_out(broken: Break, tmp_path: Path) -> None:
    pair_package.check(broken, tmp_path)


def test_the_scale_is_the_graphs(tmp_path: Path) -> None:
    pair_package.check(Break("x", newer(pair_package.SCALE), set()), tmp_path)


# A pair as it is built: each break is the only thing that is wrong with it.

PAIR = ("tiny-pair", "default", "f32")
QUICK = {"quick": True}
STATED = "component_contract.yaml"


def real(name: str, how: Callable[[Path], object], *codes: str) -> Break:
    return Break(name, how, set(codes), PAIR, options=QUICK)


def scaled(proto: onnx.ModelProto) -> None:
    """Rows as they lie in the table: the fault that makes a drafter propose in vain."""
    number = next(t for t in proto.graph.initializer if not t.external_data)
    number.CopyFrom(onnx.numpy_helper.from_array(np.ones((), np.float32), number.name))


def elsewhere(proto: onnx.ModelProto) -> None:
    table = next(t for t in proto.graph.initializer if t.external_data)
    next(e for e in table.external_data if e.key == "offset").value = "4096"


def narrower(proto: onnx.ModelProto) -> None:
    next(p for p in proto.metadata_props if p.key == "cabochon.sliding_window").value = "7"


def contract(change: Callable[[Document], object]) -> Callable[[Path], object]:
    return lambda package: write_document(package / STATED, lambda d: change(d["components"]["assistant"]))


def anchor(document: Document) -> None:
    """Layer 0's cache for the sliding layers, everywhere that it is said."""
    shared = groups(document)["sliding_attention"]["ports"]["assistant"]
    for part in ("key", "value"):
        shared[f"kv.0.{part}"] = shared.pop(f"kv.5.{part}")
        workflow(document)["steps"][0]["inputs"][f"shared_kv.sliding_attention.{part}"] = (
            f"request.kv.0.{part}"
        )


def exchanged(document: Document) -> None:
    """What the drafter reads as the sliding layers' keys are their values, and the reverse."""
    cells = groups(document)["sliding_attention"]["ports"]["assistant"]
    cells["kv.5.key"]["input"], cells["kv.5.value"]["input"] = (
        cells[f"kv.5.{part}"]["input"] for part in ("value", "key")
    )


def targets_config(package: Path) -> None:
    shutil.copy(package / "target" / "config.json", package / "config.json")


REAL = (
    real("nothing", lambda package: None),
    real("another proposer", said(proposer="other"), "SPC001", "SPC010"),
    real("no carry", chain(folded_carry_output="state"), "SPC002"),
    real("no seed", without("folded_carry_seed"), "SPC003"),
    real(
        "no such table",
        chain(token_embedding={"component": "target", "table": "model.norm.weight"}),
        "SPC004",
    ),
    real(
        "logits as the seed", chain(folded_carry_seed={"component": "target", "output": "logits"}), "SPC005"
    ),
    real("a cell forgotten", edit_document(lambda d: d["speculative"]["rollback_state"].pop()), "SPC008"),
    real("more proposed than can be taken back", said(max_proposal_width=7), "SPC009"),
    real("nothing rolls back", said(rollback_state=[]), "SPC008"),
    real("no width", said(max_proposal_width=0), "SCH003"),
    real("one group shared", said(shared_state=[FULL]), "SPC010"),
    real("a group of nobody", said(shared_state=[FULL, "sliding_attention", "cross"]), "SPC010"),
    real("a subset that is all", said(vocabulary={"kind": "subset", "proposer_vocab_size": 10}), "SPC012"),
    real("keys for values", edit_document(exchanged), "STA006", "STA017"),
    real("a weight of nobody", said(shared_weights=["lm_head.weight"]), "SPC011", "SCH007"),
    real("a map that is not there", said(vocabulary={"kind": "mapped", "artifact": "x"}), "SPC013", "FIL001"),
    real("the first layer in place of the last", edit_document(anchor), "STA015"),
    real("unscaled rows", edit_graph(scaled, "token_embedding.onnx"), "SPC016", "HON025"),
    real("rows of another place", edit_graph(elsewhere, "token_embedding.onnx"), "SPC016", "FIL010"),
    real(
        "no look-up",
        all_of(
            remove("token_embedding.onnx"),
            edit_json("provenance.json", lambda d: d["files"].pop("token_embedding.onnx")),
            lambda package: write_document(
                package / STATED, lambda d: d["components"].pop("token_embedding")
            ),
        ),
        "SPC016",
    ),
    real("another window", edit_graph(narrower), "SPC017", "HON024", "HON025"),
    real("the target's config", targets_config, "HON024"),
    real("another width", edit_json("config.json", lambda d: d.update(backbone_hidden_size=32)), "HON024"),
    real("other centroids", edit_json("config.json", lambda d: d.update(centroid_intermediate_top_k=8)), "HON024"),
    real("a port renamed", contract(lambda d: d["inputs"].update(embeds=d["inputs"].pop("inputs_embeds"))), "HON025"),
    real("another shape", contract(lambda d: d["outputs"]["logits"]["shape"].__setitem__(2, 10)), "HON025"),
    real("a key too few", contract(lambda d: d["borrows"]["sliding_attention"].update(keys_seen=8)), "HON025"),
    real("a cache of its own", contract(lambda d: d["owns"].append("kv.0.key")), "HON025"),
    real("a dense head", contract(lambda d: d["head"].update(kind="dense")), "HON025"),
    real("another graph", contract(lambda d: d.update(artifact="assistant/model.onnx")), "HON025"),
    real("another build", edit_json("provenance.json", lambda d: d["build"].update(precision="f16")), "HON002"),
    real("a tensor of nobody", edit_json("provenance.json", lambda d: d["tensors"]["used"].update(x="x")), "HON006"),
)  # fmt: skip


@pytest.mark.parametrize("broken", REAL, ids=str)
def test_a_real_pair_that_was_broken_is_found_out(broken: Break, packages: Packages, tmp_path: Path) -> None:
    check(broken, packages, tmp_path)


def window(number: str) -> Callable[[Path], object]:
    def change(proto: onnx.ModelProto) -> None:
        next(p for p in proto.metadata_props if p.key == "cabochon.sliding_window").value = number

    return edit_graph(change)


def maskless(proto: onnx.ModelProto) -> None:
    """Every column counts, whatever the mask says."""
    for node in proto.graph.node:
        node.input[:] = ["ones" if name == "attention_mask" else name for name in node.input]
    one = onnx.helper.make_tensor("one", onnx.TensorProto.INT64, [1], [1])
    proto.graph.node.insert(0, onnx.helper.make_node("ConstantOfShape", ["size"], ["ones"], value=one))
    proto.graph.node.insert(0, onnx.helper.make_node("Shape", ["attention_mask"], ["size"]))


def another_carry(proto: onnx.ModelProto) -> None:
    """A port that says what the graph does not do."""
    port = next(value for value in proto.graph.output if value.name == "projected_state")
    port.type.tensor_type.shape.dim[1].dim_value = 2


ONLY_STEPS = {"execute": True, "select": ("BEH016",)}
SAID = {
    "a window too narrow": "sliding layers see more than 8 keys",
    "a window too wide": "sliding layers see fewer than 10 keys",
    "no mask": "entries that are masked are seen, or counted",
    "another shape": "projected_state is [1, 1, 64]",
}
STEPS = tuple(
    Break(name, how, {"BEH016"}, PAIR, options=ONLY_STEPS)
    for name, how in zip(
        SAID,
        (window("7"), window("9"), edit_graph(maskless), edit_graph(another_carry)),
        strict=True,
    )
)


@pytest.mark.parametrize("broken", STEPS, ids=str)
@pytest.mark.parametrize("source", ["tiny-drafter", "tiny-pair"])
def test_a_drafter_is_held_to_what_it_says_of_its_steps(
    broken: Break, source: str, packages: Packages, tmp_path: Path
) -> None:
    verdict = check(replace(broken, package=(source, "default", "f32")), packages, tmp_path)
    assert [finding.found for finding in verdict.findings] == [SAID[broken.name]]


def test_the_drafters_of_every_target_do_what_they_say(packages: Packages) -> None:
    for target, precision in (("cuda", "f32"), ("webgpu", "f16"), ("onnx-standard", "f16")):
        built = packages("tiny-dense-drafter", target, precision)
        assert validate(built, execute=True, select=("BEH016",)).rules == ("BEH016",)
        assert validate(built, execute=True, select=("BEH016",)).passed
    with_bf16 = packages("tiny-drafter", "cuda", "bf16")
    assert "bfloat16" in validate(with_bf16, execute=True, select=("BEH016",)).skipped["BEH016"]
