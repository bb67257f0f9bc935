"""The faults that other validators accept (R1 to R31), each in a package of ours, each found by a stated rule; and that
good packages are found good.
"""

from pathlib import Path
from typing import Any

import pytest

import pair_package
from broken import Break, check, edit_document, groups, steps, workflow
from cabochon.dialects import TARGETS
from cabochon.validation import validate
from packages import Packages
from test_validation_ports import ports
from test_validation_speculative import fused, said, seed, table
from test_validation_state import FULL, SLIDING, alias, borrowed, group, move

QUICK = {"quick": True}
LOOSE = {"quick": True, "ignore": ("SCH007",)}  # keys that are put last are not where the writer has them
Document = dict[str, Any]


def port(document: Document) -> None:
    """A port that the graph does not have, everywhere where ports are named."""
    inputs = ports(document, "inputs")
    inputs["position_ids"] = inputs["input_ids"]
    next(steps(document, "invoke"))["inputs"]["position_ids"] = "request.input_ids"


def kv_type(document: Document) -> None:
    for name, contract in ports(document, "inputs").items():
        if name.startswith("past_key_values."):
            contract["dtype"] = "float16"
    for name, given in workflow(document)["inputs"].items():
        if name.startswith("request.kv."):
            given["contract"]["dtype"] = "float16"
    for cell in workflow(document)["state"].values():
        cell["contract"]["dtype"] = "float16"


def head_dim(document: Document) -> None:
    """The head size of the sliding layers for layer 4, everywhere."""
    for part in ("key", "value"):
        ports(document, "inputs")[f"past_key_values.4.{part}"]["shape"][3] = 16
        ports(document, "outputs")[f"present.4.{part}"]["shape"][3] = 16
        workflow(document)["inputs"][f"request.kv.4.{part}"]["contract"]["shape"][3] = 16
        workflow(document)["state"][f"kv.4.{part}"]["contract"]["shape"][3] = 16


def renumbered(document: Document) -> None:
    for i, part in enumerate(("key", "value")):
        groups(document)[FULL]["ports"]["decoder"][f"kv.4.{part}"]["layer"] = 0 * i


def orphan(document: Document) -> None:
    workflow(document)["state"]["kv.9.key"] = workflow(document)["state"]["kv.4.key"] | {
        "service_group": None
    }
    del workflow(document)["state"]["kv.9.key"]["service_group"]


def not_emitted(document: Document) -> None:
    workflow(document)["outputs"]["hidden"] = workflow(document)["outputs"]["logits"]


def swapped(document: Document) -> None:
    ports(document, "outputs")["logits"]["shape"][:2] = ["kept", "batch"]


def exchanged(document: Document) -> None:
    cells = borrowed(document)
    one, other = "kv.1.key", "kv.1.value"
    cells[one]["input"], cells[other]["input"] = cells[other]["input"], cells[one]["input"]


def special(document: Document) -> None:
    document["package"]["tokenizer"]["special_tokens"]["bos"]["id"] = 5000


def role(document: Document) -> None:
    workflow(document)["components"]["decoder"]["ports"]["roles"]["position_ids"] = "position_ids"


def quantized(document: Document) -> None:
    document["quantization"] = {"default": "int4"}


def lying(document: Document) -> None:
    document["model"]["attention"] = {
        "type": "gqa",
        "num_attention_heads": 8,
        "head_dim": 256,
        "sliding_window": 512,
    }


# what was accepted elsewhere -> the change, the code that finds it, every code that there is
DECODER = (
    Break("R1 a port that is not in the graph", edit_document(port), {"PRT001"}, options=QUICK),
    Break("R2 another type of the caches", edit_document(kv_type), {"PRT004", "STA016"}, options=QUICK),
    Break("R3 the head size of the other kind", edit_document(head_dim), {"PRT006", "STA016"}, options=QUICK),
    Break(
        "R4 layer 4 among the sliding ones",
        edit_document(move(4, FULL, SLIDING)),
        {"STA005", "ATT011"},
        options=QUICK,
    ),
    Break(
        "R5 a full group that may be evicted",
        edit_document(group(FULL, reuse={"prefix_reusable": True, "evictable_prefix": True})),
        {"STA012"},
        options=QUICK,
    ),
    Break(
        "R6 keys that go out as values",
        edit_document(alias("kv.3.key", output="present.3.value")),
        {"STA001", "STA006", "STA011"},
        options=QUICK,
    ),
    Break(
        "R7 two cells on one past",
        edit_document(alias("kv.3.key", input="past_key_values.2.key")),
        {"STA001", "STA003", "STA006", "STA007", "STA011", "STA017"},
        options=QUICK,
    ),
    Break("R8 owners numbered anew", edit_document(renumbered), {"STA003"}, options=QUICK),
    Break("R9 a layout of no meaning", edit_document(group(layout="qwerty")), {"STA010"}, options=QUICK),
    Break("R10 another axis", edit_document(group(sequence_axis=1)), {"STA009", "STA010"}, options=QUICK),
    Break("R11 a role of a port that there is not", edit_document(role), {"REF013"}, options=QUICK),
    Break("R12 a cell that nothing advances", edit_document(orphan), {"REF011"}, options=QUICK),
    Break("R13 an output that is never emitted", edit_document(not_emitted), {"REF009"}, options=QUICK),
    Break("R14 rows and positions exchanged", edit_document(swapped), {"PRT007"}, options=QUICK),
    Break(
        "R15 version 99", edit_document(lambda d: d.update(schema_version="v99")), {"SCH004"}, options=QUICK
    ),
    Break(
        "R16 a tokenizer that is not there",
        edit_document(lambda d: d["package"]["tokenizer"].update(artifacts=[{"location": "tokens.json"}])),
        {"FIL001"},
        options=QUICK,
    ),
    Break(
        "R17 another vocabulary than the logits have",
        edit_document(lambda d: d["model"].update(vocab_size=1000)),
        {"HON010"},
        options=QUICK,
    ),
    Break("R18 a token beyond the vocabulary", edit_document(special), {"HON020"}, options=QUICK),
    Break("R19 int4 said of f32", edit_document(quantized), {"HON012"}, options=LOOSE),
    Break("R20 an attention that the graph does not have", edit_document(lying), {"HON011"}, options=LOOSE),
)
PAIR = (
    Break("R21 a table that is no initializer", table("embed_tokens"), {"SPC004"}),
    Break("R22 logits for a seed", seed("logits"), {"SPC005"}),
    Break(
        "R23 a part of the cells rolls back",
        edit_document(lambda d: d["speculative"]["rollback_state"].pop()),
        {"SPC008"},
    ),
    Break("R24 nothing rolls back", said(rollback_state=[]), {"SPC008"}),
    Break("R25 an unknown group", said(shared_state=[FULL, SLIDING, "cross"]), {"SPC010"}),
    Break("R26 an unknown weight", said(shared_weights=["lm_head.weight"]), {"SPC011"}),
    Break("R27 proposals of no width", said(max_proposal_width=0), {"SCH003"}),
    Break(
        "R28 a subset of a vocabulary that is the same",
        said(vocabulary={"kind": "subset", "proposer_vocab_size": 10}),
        {"SPC012"},
    ),
    Break(
        "R29 a map that is not there", said(vocabulary={"kind": "mapped", "artifact": "map.bin"}), {"SPC013"}
    ),
    Break("R30 an assistant's keys and values exchanged", edit_document(exchanged), {"STA006", "STA017"}),
    Break("R31 a fused width of no sum", fused(20), {"SPC006"}),
)


@pytest.mark.parametrize("broken", DECODER, ids=str)
def test_a_fault_of_a_decoder_is_found(broken: Break, packages: Packages, tmp_path: Path) -> None:
    check(broken, packages, tmp_path)


@pytest.mark.parametrize("broken", PAIR, ids=str)
def test_a_fault_of_a_pair_is_found(broken: Break, tmp_path: Path) -> None:
    pair_package.check(broken, tmp_path)


def test_every_fault_has_its_test() -> None:
    assert [broken.name.split()[0] for broken in (*DECODER, *PAIR)] == [f"R{i}" for i in range(1, 32)]


# what is known of a precision on a target, and said in the card
KNOWN = {
    ("default", "bf16"): {"RUN002"},
    ("onnx-standard", "bf16"): {"RUN002"},
    ("cuda", "f32"): {"RUN002"},
    ("cuda", "bf16"): {"RUN012"},
    ("webgpu", "f16"): {"RUN012"},
}
# Of the other members of the family tests/test_family_contracts.py builds and judges one.
GOOD = ("tiny", "moe", "miniature")
BUILDS = [(s, t.name, p) for s in GOOD for t in TARGETS.values() for p in sorted(t.precisions)]


@pytest.mark.parametrize("source, target, precision", BUILDS)
def test_a_good_package_is_found_good(source: str, target: str, precision: str, packages: Packages) -> None:
    verdict = validate(packages(source, target, precision), quick=True)
    loops = {"RUN003"} if (source, target) == ("moe", "webgpu") else set()  # over experts, on the CPU
    assert {f.code for f in verdict.findings} == KNOWN.get((target, precision), set()) | loops, (
        verdict.findings
    )
    assert verdict.passed
