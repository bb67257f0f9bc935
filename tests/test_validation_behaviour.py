"""Behaviour: good packages of every target pass; each claim has graphs or documents that break it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from broken import (
    CANONICAL,
    LOOP,
    Break,
    all_of,
    check,
    codes,
    copied,
    edit_document,
    edit_graph,
    groups,
    steps,
    workflow,
)
from cabochon.validation import validate
from cabochon.validation.execution import bench
from cabochon.validation.opened import open_package
from packages import Packages

RUN = {"execute": True, "select": ["BEH"]}
ELSEWHERE = {"BEH001"}  # this onnxruntime has the provider of the CPU alone
GOOD = [
    (source, target, precision)
    for source in ("tiny", "miniature")
    for target in ("default", "onnx-standard", "cuda", "webgpu")
    for precision in ("f32", "f16")
]


@pytest.mark.parametrize("built", GOOD, ids="-".join)
def test_packages_of_every_target_do_what_their_documents_say(built, packages):
    verdict = validate(packages(*built), **RUN)
    assert codes(verdict) == (ELSEWHERE if built[1] in ("cuda", "webgpu") else set()), verdict.findings
    assert set(verdict.rules) == {f"BEH{n:03}" for n in range(1, 16)}
    assert verdict.passed


def test_the_verdict_says_which_provider_ran_the_graphs(packages):
    (note,) = validate(packages("tiny", "webgpu"), **RUN).findings
    assert note.found.startswith("CPUExecutionProvider in place of WebGpuExecutionProvider")
    assert note.severity == "note"


def test_bfloat16_cannot_be_fed_and_that_is_said_of_every_rule(packages):
    verdict = validate(packages("tiny", "onnx-standard", "bf16"), **RUN)
    assert verdict.findings == () and verdict.rules == ()
    reasons = {code: why for code, why in verdict.skipped.items() if code.startswith("BEH")}
    assert reasons.pop("BEH016") == "there is no drafter"
    assert reasons.pop("BEH017") == "there are no encoders"
    assert set(reasons.values()) == {"model.onnx: onnxruntime takes no bfloat16 arrays from Python"}


def test_nothing_runs_unless_it_is_asked_for(packages):
    verdict = validate(packages(), select=["BEH"])
    assert verdict.rules == () and "only with --execute" in verdict.skipped["BEH006"]


def keeping(model: onnx.ModelProto, count: int) -> None:
    """Another default of the optional input."""
    stored = next(t for t in model.graph.initializer if t.name == "logits_to_keep")
    stored.CopyFrom(numpy_helper.from_array(np.array(count), stored.name))


def test_a_graph_that_takes_one_row_is_found_where_rows_are_said_to_be_independent(packages, tmp_path):
    """GroupQueryAttention refuses to keep the last three of several rows; the document speaks of the stored default."""
    package = copied(packages("tiny", "cuda", "f32"), tmp_path / "p")
    edit_graph(lambda model: keeping(model, 3))(package)
    verdict = validate(package, **RUN)
    assert codes(verdict) == ELSEWHERE | {"BEH011"}
    assert verdict.skipped["BEH012"] == "what the mask leaves out is seen in ragged rows: two rows do not run"


def test_what_a_large_model_cannot_afford_is_said(packages, monkeypatch):
    monkeypatch.setattr(bench, "WORK", 1.0)
    verdict = validate(packages("miniature"), **RUN)
    (note,) = verdict.findings
    assert note.found == "runs of at most 24 tokens; not reached: 31, 32, 33, 67"
    assert verdict.skipped["BEH007"].startswith("a window of 32 needs longer runs than 24 tokens")


def claims(**said: Any) -> Callable[[Path], object]:
    """Capabilities that every group claims."""
    return edit_document(lambda d: [group.update(capabilities=said) for group in groups(d).values()])


def contract(side: str, port: str, **changes: Any) -> Callable[[Path], object]:
    return edit_document(lambda d: workflow(d)["components"]["decoder"]["ports"][side][port].update(changes))


def full(**changes: Any) -> Callable[[Path], object]:
    return edit_document(lambda d: groups(d)["full_attention"].update(changes))


def constant(operator: str, value: int, to: int) -> Callable[[Path], object]:
    """Give the nodes of a kind that take the whole number `value` another one."""

    def change(proto: onnx.ModelProto) -> None:
        whole = [t for t in proto.graph.initializer if not t.dims and t.data_type == TensorProto.INT64]
        (one,) = [t.name for t in whole if numpy_helper.to_array(t) == value]
        proto.graph.initializer.append(numpy_helper.from_array(np.int64(to), "another"))
        users = [n for n in proto.graph.node if n.op_type == operator and one in n.input]
        assert users
        for user in users:
            user.input[list(user.input).index(one)] = "another"

    return edit_graph(change)


def behind(output: str, *nodes: onnx.NodeProto, **constants: np.ndarray) -> Callable[[Path], object]:
    """Let `nodes` make an output of the graph from what made it before, which is then called "clean"."""

    def change(proto: onnx.ModelProto) -> None:
        for node in proto.graph.node:
            for names in (node.input, node.output):
                for i, name in enumerate(names):
                    if name == output:
                        names[i] = "clean"
        proto.graph.node.extend(nodes)
        proto.graph.initializer.extend(numpy_helper.from_array(v, name) for name, v in constants.items())

    return edit_graph(change)


def node(operator: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(operator, inputs.split(), [output], **attributes)


def per_token(output: str, share: float) -> Callable[[Path], object]:
    """An output to which a share of the number of new tokens is added."""
    return behind(
        output,
        node("Shape", "input_ids", "count", start=1, end=2),
        node("CastLike", "count clean", "tokens"),
        node("Mul", "tokens share", "more"),
        node("Add", "clean more", output),
        share=np.float32(share),
    )


def operator(name: str) -> Callable[[Path], object]:
    def change(proto: onnx.ModelProto) -> None:
        proto.graph.node[-1].op_type = name

    return edit_graph(change)


def default(value: int) -> Callable[[Path], object]:
    """The canonical workflow feeds `logits_to_keep` what a request says, and states a default for the others."""

    def change(document: dict[str, Any]) -> None:
        next(steps(document, "invoke"))["inputs"]["logits_to_keep"] = "request.keep"
        workflow(document)["inputs"]["request.keep"] = {
            "contract": {"dtype": "int64", "rank": 0, "shape": []},
            "role": {"kind": "opaque"},
            "source": {"kind": "request"},
            "required": False,
            "default": value,
        }

    return edit_document(change)


def wired(port: str, value: str, *, nth: int = 0, component: str = "decoder", document: str = CANONICAL):
    """Another value for a port in the nth step that runs a component."""

    def change(d: dict[str, Any]) -> None:
        found = [step for step in steps(d, "invoke") if step["component"] == component]
        found[nth]["inputs"][port] = value

    return edit_document(change, document)


def carried(cell: str, value: str) -> Callable[[Path], object]:
    def change(document: dict[str, Any]) -> None:
        for carry in next(steps(document, "loop"))["carried"]:
            if carry["cell"] == cell:
                carry["next"] = value

    return edit_document(change, LOOP)


def emitted(**changes: Any) -> Callable[[Path], object]:
    return edit_document(lambda d: next(steps(d, "emit")).update(changes), LOOP)


NOISE = behind(
    "logits", node("Dropout", "clean half yes", "logits"), half=np.array(0.5, np.float32), yes=np.array(True)
)
MIXED = behind(
    "logits",
    node("ReduceMean", "clean axes", "mean", keepdims=1),
    node("Sub", "clean mean", "logits"),
    axes=np.array([0, 2]),  # a shift of all logits of a column: the same tokens stay the likeliest
)
FAR = 1 << 40

BREAKS = (
    Break("an operator that nobody knows", operator("NoSuchOperator"), {"BEH002"}),
    Break(
        "an alias on a port that the graph lacks",
        edit_document(
            lambda d: groups(d)["full_attention"]["ports"]["decoder"]["kv.4.key"].update(
                output="present.40.key"
            )
        ),
        {"BEH002"},
    ),
    Break(
        "a vocabulary of another size",
        contract("outputs", "logits", shape=["batch", "kept", 511]),
        {"BEH003"},
    ),
    Break("another element type", contract("outputs", "logits", dtype="float16"), {"BEH003"}),
    Break(
        "a symbol for a cache before and after",
        contract("outputs", "present.4.key", shape=["batch", 1, "past_sequence", 32]),
        {"BEH003"},
    ),
    Break(
        "one symbol for both kinds of caches",
        contract("outputs", "present.0.key", shape=["batch", 1, "present_sequence", 16]),
        {"BEH003"},
    ),
    Break("a mask that cannot be left out", contract("inputs", "attention_mask", optional=True), {"BEH004"}),
    Break("another default than the graph's", default(1), {"BEH004"}),
    Break("the graph's own default", default(0), set()),
    Break(
        "old entries that change a little",
        behind("present.4.key", node("Mul", "clean factor", "present.4.key"), factor=np.float32(1 + 1e-5)),
        {"BEH005"},
    ),
    Break("results that depend on the chunk", per_token("logits", 0.1), {"BEH006", "BEH011"}),
    Break(
        "full attention that claims to be evictable",
        full(reuse={"prefix_reusable": True, "evictable_prefix": True}),
        {"BEH007"},
    ),
    Break(
        "the same in f16",
        full(reuse={"prefix_reusable": True, "evictable_prefix": True}),
        {"BEH007"},
        ("tiny", "default", "f16"),
    ),
    Break("a window wider than the package says", constant("Sub", 8, 16), {"BEH007"}),
    Break(
        "rollback of a state that sums up",
        all_of(claims(rollback_positions=2), per_token("present.4.value", 0.1)),
        {"BEH005", "BEH006", "BEH008", "BEH011"},
    ),
    Break("capabilities that hold", claims(rollback_positions=4, snapshot=True, fork=True), set()),
    Break(
        "random numbers in the graph",
        all_of(claims(snapshot=True, fork=True), NOISE),
        {"BEH006", "BEH007", "BEH009", "BEH010", "BEH011", "BEH012", "BEH015"},
    ),
    Break("rows that are mixed", MIXED, {"BEH011"}),  # a row that ended changes the one that goes on
    Break("rows that are mixed in f16", MIXED, {"BEH011"}, ("miniature", "onnx-standard", "f16")),
    Break("a mask that is not looked at", constant("Where", FAR, 0), {"BEH011", "BEH012"}),
    Break("a shared buffer for a graph that concatenates", full(aliasing="permitted"), {"BEH013"}),
    Break("a shared buffer that a graph must have", full(aliasing="required"), {"BEH013"}),
    Break(
        "keys and values exchanged in a step",
        all_of(
            wired("past_key_values.4.key", "request.kv.4.value"),
            wired("past_key_values.4.value", "request.kv.4.key"),
        ),
        {"BEH015"},
    ),
    Break("a cell carried from another layer", carried("kv.0.key", "step.kv.1.key"), {"BEH015"}),
    Break("logits that are never carried on", carried("logits", "logits"), {"BEH015"}),
    Break(
        "a token that is always the first",
        wired("update", "token", component="token_state_update", document=LOOP),
        {"BEH015"},
    ),
    Break(
        "the mask of another step",
        wired("attention_mask", "first.body_attention_mask", document=LOOP),
        {"BEH015"},
    ),
    Break(
        "a loop that the end tokens do not end",
        wired("input_eos_lengths", "package.zero", component="termination_batch_initializer", document=LOOP),
        {"BEH015"},
    ),
    Break("a token emitted twice too late", emitted(value="token"), {"BEH015"}),
    Break("a value that no step made", emitted(value="drawn.nothing"), {"BEH015"}),
)


@pytest.mark.parametrize("broken", BREAKS, ids=str)
def test_a_claim_that_does_not_hold_is_found(broken, packages, tmp_path):
    check(Break(**{**vars(broken), "options": RUN}), packages, tmp_path)


def test_a_finding_says_what_differs_where(packages, tmp_path):
    verdict = check(
        Break("full", next(b.how for b in BREAKS if "evictable" in b.name), {"BEH007"}, options=RUN),
        packages,
        tmp_path,
    )
    (found,) = verdict.findings
    assert (
        found.at
        == f"{CANONICAL}: pipeline.workflow.serving.state_service.groups.full_attention.reuse.evictable_prefix"
    )
    assert found.found.startswith("the first 1 of 8 entries dropped, 1 more tokens: ")


def test_what_does_not_run_leaves_the_other_rules_skipped(packages, tmp_path):
    verdict = check(
        Break("operator", operator("NoSuchOperator"), {"BEH002"}, options=RUN), packages, tmp_path
    )
    assert verdict.skipped["BEH006"] == "no component runs (BEH002)"


def literal(name: str, **changes: Any) -> Callable[[Path], object]:
    return edit_document(lambda d: workflow(d)["inputs"][name].update(changes), LOOP)


ODD = (
    Break("no pipeline", edit_document(lambda d: d.pop("pipeline")), set()),
    Break("no state service", edit_document(lambda d: workflow(d).pop("serving")), set()),
    Break("another axis", full(sequence_axis=9), {"BEH002"}),
    Break(
        "a length that leaves no room",
        edit_document(lambda d: d["model"].update(max_sequence_length=1)),
        {"BEH001"},
    ),
    Break("more positions than anybody has", claims(rollback_positions=10**9), set()),
    Break("a constant that is no number", literal("package.one", default="x"), {"BEH015"}),
    Break(
        "a constant that does not fit its shape",
        literal("package.eos_ids", default=[1, 2], contract={"dtype": "int64", "rank": 1, "shape": [7]}),
        {"BEH015"},
    ),
    Break("an axis that tokens do not have", emitted(axis=5), {"BEH015"}),
    Break("no cells", edit_document(lambda d: workflow(d).update(state={}), LOOP), {"BEH015"}),
)


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_documents_that_cannot_be_followed_are_findings_or_skipped(odd, packages, tmp_path):
    check(Break(**{**vars(odd), "options": RUN}), packages, tmp_path)


def reader(output: bool) -> Callable[[Path], object]:
    """A component that attends over the cells of layer 4, and appends to what it reads where `output` is bound."""

    def how(package: Path) -> None:
        (package / "reader.onnx").write_bytes(reading_graph().SerializeToString())
        edit_document(declare)(package)

    def declare(document: dict[str, Any]) -> None:
        workflow(document)["components"]["reader"] = {
            "implementation": {"kind": "onnx", "artifact": "reader.onnx"},
            "ports": {"roles": {"inputs_embeds": "inputs_embeds", "attention_mask": "attention_mask"}},
        }
        groups(document)["full_attention"]["ports"]["reader"] = {
            f"kv.4.{part}": {"input": f"shared.{part}", "access": "read_only", "role": part}
            | ({"output": f"grown.{part}"} if output else {})
            for part in ("key", "value")
        }

    return how


def reading_graph() -> onnx.ModelProto:
    """GroupQueryAttention of 4 heads over one of 32: the new key stands behind those that the mask counts."""

    def port(name: str, dtype: int, *shape: str | int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, dtype, shape)

    cache = ("batch", 1, "columns", 32)
    graph = helper.make_graph(
        [
            node("Slice", "inputs_embeds zero width last", "new"),
            node("Cast", "attention_mask", "real", to=TensorProto.INT32),
            node("ReduceSum", "real last", "last_key", keepdims=0),
            node("ReduceMax", "last_key", "most", keepdims=0),
            node("Add", "most one", "total"),
            helper.make_node(
                "GroupQueryAttention",
                ["inputs_embeds", "new", "new", "shared.key", "shared.value", "last_key", "total"],
                ["hidden", "grown.key", "grown.value"],
                domain="com.microsoft",
                num_heads=4,
                kv_num_heads=1,
            ),
        ],
        "reader",
        [
            port("inputs_embeds", TensorProto.FLOAT, "batch", "q", 128),
            port("attention_mask", TensorProto.INT64, "batch", "kv_sequence"),
            *(port(f"shared.{part}", TensorProto.FLOAT, *cache) for part in ("key", "value")),
        ],
        [
            port("hidden", TensorProto.FLOAT, "batch", "q", 128),
            *(port(f"grown.{part}", TensorProto.FLOAT, "batch", 1, "grown", 32) for part in ("key", "value")),
        ],
        [
            *(
                numpy_helper.from_array(np.array([n]), name)
                for name, n in (("zero", 0), ("width", 32), ("last", -1))
            ),
            numpy_helper.from_array(np.int32(1), "one"),
        ],
    )
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


READERS = (
    Break("a component that only reads", reader(False), ELSEWHERE, ("tiny", "cuda", "f32"), options=RUN),
    Break(
        "a component that writes into what it reads",
        reader(True),
        ELSEWHERE | {"BEH014"},
        ("tiny", "cuda", "f32"),
        options=RUN,
    ),
)


@pytest.mark.parametrize("broken", READERS, ids=str)
def test_a_component_that_only_reads_leaves_its_source_alone(broken, packages: Packages, tmp_path):
    verdict = check(broken, packages, tmp_path)
    changed = [f.found for f in verdict.findings if f.code == "BEH014"]
    assert changed == (["kv.4.key changed behind shared.key"] if "BEH014" in broken.codes else [])


@pytest.mark.parametrize(("precision", "least", "most"), [("f32", 1e-4, 1e-4), ("f16", 2**-9, 2**-4)])
def test_what_may_differ_is_fixed_in_f32_and_measured_within_bounds_in_f16(precision, least, most, packages):
    made = bench.bench(open_package(packages("miniature", "cuda", precision)))
    assert least <= made.driven["decoder"].tolerance <= most
