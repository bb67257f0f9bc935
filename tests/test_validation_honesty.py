"""Rules on honesty: provenance, card, documents, genai_config.json and evidence against what is measured."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from broken import Break, all_of, check, edit_bytes, edit_document, edit_graph, edit_json, write
from cabochon import build
from cabochon.validation import validate
from cabochon.validation.genai_claims import DRAWN
from cabochon.validation.norm_claims import EPSILONS
from checkpoints import EXPERTS, copy
from packages import Packages

QUICK = {"quick": True}
OURS = {"quick": True, "select": ("HON",)}
DOCUMENT = {"quick": True, "select": ("HON", "SCH003", "REF", "PRT")}
How = Callable[[Path], object]


def provenance(*path: str, value: Any) -> How:
    def change(data: dict[str, Any]) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return edit_json("provenance.json", change)


def contract(key: str, value: Any) -> How:
    return provenance("architecture_contracts", key, value=value)


def card(old: str, new: str) -> How:
    def change(text: bytes) -> bytes:
        assert old.encode() in text, old
        return text.replace(old.encode(), new.encode())

    return edit_bytes("README.md", change)


def model(**changes: Any) -> How:
    return edit_document(lambda d: d.setdefault("model", {}).update(changes))


def genai(*path: str, value: Any) -> How:
    def change(data: dict[str, Any]) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return edit_json("genai_config.json", change)


def config(key: str, value: Any) -> How:
    return edit_json("config.json", lambda data: data.__setitem__(key, value))


def default_epsilon(proto: onnx.ModelProto) -> None:
    """The last norm adds what its operator does unless told otherwise."""
    norm = next(node for node in reversed(proto.graph.node) if node.op_type == "RMSNormalization")
    del norm.attribute[[a.name for a in norm.attribute].index("epsilon")]


def one_expert(proto: onnx.ModelProto) -> None:
    """The last router takes the likeliest expert alone."""
    proto.graph.initializer.append(numpy_helper.from_array(np.array([1], np.int64), "one_expert"))
    router = next(node for node in reversed(proto.graph.node) if node.op_type == "TopK")
    router.input[1] = "one_expert"


def drop(*path: str) -> How:
    def change(data: dict[str, Any]) -> None:
        for key in path[:-1]:
            data = data[key]
        del data[path[-1]]

    return edit_json("genai_config.json", change)


def special(role: str, number: int, content: str) -> How:
    def change(document: dict[str, Any]) -> None:
        document["package"]["tokenizer"]["special_tokens"][role] = {"id": number, "content": content}

    return edit_document(change)


def leave_out(role: str) -> How:
    return edit_document(lambda d: d["package"]["tokenizer"]["special_tokens"].pop(role))


def prop(key: str, value: str | None) -> How:
    def change(proto: onnx.ModelProto) -> None:
        kept = [(p.key, p.value) for p in proto.metadata_props if p.key != key]
        del proto.metadata_props[:]
        for name, text in [*kept, *([(key, value)] if value is not None else [])]:
            proto.metadata_props.add(key=name, value=text)

    return all_of(edit_graph(change), weighed("model.onnx"))


def weighed(name: str) -> How:
    """provenance.json with the size and the hash that a file has now."""
    from cabochon.files import sha256

    def how(package: Path) -> None:
        entry = {"bytes": (package / name).stat().st_size, "sha256": sha256(package / name)}
        edit_json("provenance.json", lambda data: data["files"].__setitem__(name, entry))(package)

    return how


def tap(proto: onnx.ModelProto) -> None:
    for value in (*proto.graph.output, *proto.graph.value_info):
        value.name = "hidden_states.8" if value.name == "hidden_states.9" else value.name
    for node in proto.graph.node:
        for names in (node.input, node.output):
            names[:] = ["hidden_states.8" if name == "hidden_states.9" else name for name in names]


def scaled(proto: onnx.ModelProto) -> None:
    """Another scale of the embeddings."""
    rows = next(
        n for n in proto.graph.node if n.op_type == "Gather" and n.input[0] == "model.embed_tokens.weight"
    )
    product = next(n for n in proto.graph.node if n.op_type == "Mul" and rows.output[0] in n.input)
    tensor = next(t for t in proto.graph.initializer if t.name in product.input)
    value = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array((value * 2).astype(value.dtype), tensor.name))


def evidence(**content: Any) -> How:
    facts = {"target": "default", "precision": "f32", "sha256": {}}
    return write("evidence/l4_parity.json", json.dumps(facts | content))


def verdict(**content: Any) -> How:
    record = {"validator": {"name": "cabochon", "version": "0.1.0"}, "passed": True, "rules": ["FIL001"]}
    return write("evidence/validation.json", json.dumps(record | content))


MIXTURE = ("moe-full", "default", "f32")
MIXED = "8 experts of width 32, 2 for each token, beside a dense MLP"
ROW = {"name": "a", "passed": True}
TRIAL = {"how": "x", "passed": True, "prompts": [ROW]}
BF16 = ("tiny", "default", "bf16")
BREAKS = (
    Break("another number of layers", contract("num_hidden_layers", 35), {"HON001"}, options=QUICK),
    Break("another number of owners", contract("owned_kv_layers", 10), {"HON001"}, options=QUICK),
    Break("one head size", contract("head_dim", 16), {"HON001"}, options=QUICK),
    Break(
        "head sizes exchanged",
        contract("heterogeneous_head_dim", {"local_sliding": 32, "global_full": 16}),
        {"HON001"},
        options=QUICK,
    ),
    Break("another soft-cap", contract("final_logit_softcapping", 50.0), {"HON001"}, options=QUICK),
    Break("another target", provenance("build", "target", value="cuda"), {"HON002"}, options=QUICK),
    Break("another type", provenance("build", "dtype", value="float16"), {"HON002"}, options=QUICK),
    Break(
        "other operators",
        provenance("build", "operators", value={"Attention": 10}),
        {"HON002"},
        options=QUICK,
    ),
    Break("another operator set", provenance("build", "opsets", value={"": 24}), {"HON002"}, options=QUICK),
    Break(
        "other fusions",
        provenance("build", "optimize", value=["group_query_attention"]),
        {"HON002"},
        options=QUICK,
    ),
    Break(
        "another default of logits_to_keep",
        provenance("build", "logits_to_keep", value=1),
        {"HON002"},
        options=QUICK,
    ),
    Break("another precision", prop("cabochon.precision", "f16"), {"HON002", "HON003"}, options=OURS),
    Break(
        "another scale in the record",
        provenance("build", "embed_scale", value=39.19),
        {"HON004"},
        options=QUICK,
    ),
    Break(
        "another scale in the graph",
        all_of(edit_graph(scaled), weighed("model.onnx")),
        {"HON004", "HON007"},
        options=OURS,
    ),
    Break("another scale in the properties", prop("cabochon.embed_scale", "1.0"), {"HON004"}, options=OURS),
    Break(
        "another size of a file",
        provenance("files", "model.onnx", "bytes", value=1),
        {"HON005"},
        options=QUICK,
    ),
    Break(
        "another hash of a file",
        provenance("files", "model.onnx", "sha256", value="0" * 64),
        {"HON005"},
        options=QUICK,
    ),
    Break(
        "a weight that the record leaves out",
        edit_json("provenance.json", lambda d: d["tensors"]["used"].pop("model.norm.weight")),
        {"HON006"},
        options=QUICK,
    ),
    Break(
        "a weight that there is not",
        provenance("tensors", "used", "lm_head.weight", value="lm_head.weight"),
        {"HON006"},
        options=QUICK,
    ),
    Break(
        "another number of layers in the card",
        card("10 (`Attention`", "35 (`Attention`"),
        {"HON007"},
        options=QUICK,
    ),
    Break(
        "another attention in the card",
        card("(`Attention` × 10)", "(`GroupQueryAttention` × 10)"),
        {"HON007"},
        options=QUICK,
    ),
    Break(
        "another window in the card",
        card("sliding_window(8)", "sliding_window(512)"),
        {"HON007"},
        options=QUICK,
    ),
    Break(
        "other head sizes in the card",
        card("global/full **32**", "global/full **512**"),
        {"HON007"},
        options=QUICK,
    ),
    Break(
        "other owners in the card", card("**6** layers own", "**10** layers own"), {"HON007"}, options=QUICK
    ),
    Break(
        "fusions that there are not",
        card("`fast_gelu`, `fused_matmul`", "`group_query_attention`"),
        {"HON007"},
        options=QUICK,
    ),
    Break("another width in the card", card("width 96 in", "width 48 in"), {"HON007"}, options=QUICK),
    Break(
        "experts in the card",
        card("disabled in this checkpoint (enable_moe_block=false); dense MLP", MIXED),
        {"HON007"},
        options=QUICK,
    ),
    Break("fewer experts in the card", card("8 experts", "7 experts"), {"HON007"}, MIXTURE, options=QUICK),
    Break("experts in the record", contract("moe", MIXED), {"HON001"}, options=QUICK),
    Break("no experts in the record", contract("moe", "disabled"), {"HON001"}, MIXTURE, options=QUICK),
    Break("pictures in the record", contract("vision", {"hidden_size": 32}), {"HON001"}, options=QUICK),
    Break(
        "another type in the card", card("`float32` / `CPU", "`float16` / `CPU"), {"HON008"}, options=QUICK
    ),
    Break(
        "another provider in the card",
        card("`float32` / `CPUExecution", "`float32` / `CUDAExecution"),
        {"HON008"},
        options=QUICK,
    ),
    Break(
        "a caveat withheld",
        card("no released onnxruntime has bf16 kernels", "it runs"),
        {"HON009", "RUN002"},
        BF16,
        options=QUICK,
    ),
    Break("another vocabulary", model(vocab_size=1000), {"HON010"}, options=DOCUMENT),
    Break("another length", model(max_sequence_length=10**9), {"HON010"}, options=DOCUMENT),
    Break("experts of a model without any", model(mixture_of_experts=EXPERTS), {"HON034"}, options=DOCUMENT),
    Break(
        "more experts for a token",
        edit_document(lambda d: d["model"]["mixture_of_experts"].update(experts_per_token=4)),
        {"HON034"},
        MIXTURE,
        options=DOCUMENT,
    ),
    Break(
        "a router that chooses one expert",
        all_of(edit_graph(one_expert, "decoder/model.onnx"), weighed("decoder/model.onnx")),
        {"HON037"},
        MIXTURE,
        options=OURS,
    ),
    Break(
        "no word of the experts",
        edit_document(lambda d: d["model"].pop("mixture_of_experts")),
        {"HON034"},
        MIXTURE,
        options=DOCUMENT,
    ),
    Break(
        "one head size in model.attention",
        model(attention={"type": "gqa", "head_dim": 16}),
        {"HON011"},
        options=DOCUMENT,
    ),
    Break(
        "other heads in model.attention",
        model(attention={"type": "gqa", "num_attention_heads": 8}),
        {"HON011"},
        options=DOCUMENT,
    ),
    Break(
        "quantized weights",
        edit_document(lambda d: d.update(quantization={"default": "int4"})),
        {"HON012"},
        options=DOCUMENT,
    ),
    Break(
        "quantized layers",
        edit_document(lambda d: d.update(quantization={"overrides": [{"layers": [0], "precision": "int8"}]})),
        {"HON012"},
        options=DOCUMENT,
    ),
    Break(
        "hidden states of another layer",
        all_of(edit_graph(tap), weighed("model.onnx")),
        {"HON013"},
        options=OURS,
    ),
    Break(
        "hidden states that there are not",
        provenance("build", "outputs_note", value="hidden_states.34 = x"),
        {"HON013"},
        options=QUICK,
    ),
    Break(
        "another window in the properties", prop("cabochon.sliding_window", "512"), {"HON014"}, options=OURS
    ),
    Break(
        "padding that the graph does not take",
        prop("cabochon.mask", "left-justified"),
        {"HON014"},
        options=OURS,
    ),
    Break("an unknown target", prop("cabochon.target", "npu"), {"HON002", "HON014"}, options=OURS),
    Break("no window in the properties", prop("cabochon.sliding_window", None), {"HON015"}, options=OURS),
    Break(
        "other layers for genai",
        genai("model", "decoder", "num_hidden_layers", value=35),
        {"HON016"},
        options=QUICK,
    ),
    Break(
        "one head size for genai", genai("model", "decoder", "head_size", value=16), {"HON016"}, options=QUICK
    ),
    Break(
        "another length for genai", genai("model", "context_length", value=131072), {"HON016"}, options=QUICK
    ),
    Break(
        "other names for genai",
        genai("model", "decoder", "inputs", "past_key_names", value="past.%d.key"),
        {"HON016"},
        options=QUICK,
    ),
    Break(
        "a shared buffer of Attention",
        genai("search", "past_present_share_buffer", value=True),
        {"HON017"},
        options=QUICK,
    ),
    Break(
        "evidence of other weights", evidence(sha256={"model.onnx.data": "0" * 64}), {"HON018"}, options=QUICK
    ),
    Break("evidence of another precision", evidence(precision="bf16"), {"HON018"}, options=QUICK),
    Break(
        "evidence of a file that there is not",
        evidence(sha256={"x.onnx": "0" * 64}),
        {"HON018"},
        options=QUICK,
    ),
    Break(
        "passed, with a trial that did not",
        evidence(passed=True, trials=[TRIAL, TRIAL | {"passed": False}]),
        {"HON019"},
        options=QUICK,
    ),
    Break("passed, with nothing tried", evidence(passed=True, trials=[]), {"HON019"}, options=QUICK),
    Break(
        "passed, with a prompt that did not",
        evidence(passed=True, trials=[TRIAL | {"prompts": [{"passed": False}]}]),
        {"HON019"},
        options=QUICK,
    ),
    Break(
        "validated by a rule that was skipped",
        verdict(skipped={"FIL001": "not selected"}),
        {"HON019"},
        options=QUICK,
    ),
    Break("validated, with errors", verdict(findings=[{"severity": "error"}]), {"HON019"}, options=QUICK),
    Break("validated by no rule", verdict(rules=[]), {"HON019"}, options=QUICK),
    Break("a token beyond the vocabulary", special("bos", 512, "<bos>"), {"HON020"}, options=DOCUMENT),
    Break("a token of another text", special("bos", 2, "<s>"), {"HON020"}, options=DOCUMENT),
    Break(
        "a token of genai beyond the vocabulary",
        genai("model", "bos_token_id", value=99999),
        {"HON020", "HON036"},
        options=QUICK,
    ),
    Break("another padding for genai", genai("model", "pad_token_id", value=7), {"HON036"}, options=QUICK),
    Break(
        "another first token for genai", genai("model", "bos_token_id", value=5), {"HON036"}, options=QUICK
    ),
    Break("no end for genai", drop("model", "eos_token_id"), {"HON021"}, options=QUICK),
    Break("no first token for genai", drop("model", "bos_token_id"), {"HON036"}, options=QUICK),
    Break("nothing said of drawing", drop("search", "do_sample"), {"HON036"}, options=QUICK),
    Break(
        "a penalty of nobody's", genai("search", "repetition_penalty", value=5.0), {"HON036"}, options=QUICK
    ),
    Break("what is done anyway", genai("search", "repetition_penalty", value=1), set(), options=QUICK),
    Break("a number too large", genai("search", "temperature", value=10**400), {"HON036"}, options=QUICK),
    Break("a length too large", genai("search", "max_length", value=1e9), {"HON036"}, options=QUICK),
    Break("hotter for genai", genai("search", "temperature", value=1.7), {"HON036"}, options=QUICK),
    Break("greedy for genai", genai("search", "do_sample", value=False), {"HON036"}, options=QUICK),
    Break(
        "longer than positions reach", genai("search", "max_length", value=10**6), {"HON036"}, options=QUICK
    ),
    Break("another epsilon in config.json", config("rms_norm_eps", 1e-5), {"HON035"}, options=QUICK),
    Break(
        "one norm without its epsilon",
        all_of(edit_graph(default_epsilon), weighed("model.onnx")),
        {"HON035"},
        options=OURS,
    ),
    Break("an end token left out", leave_out("eot"), {"HON021"}, options=DOCUMENT),
    Break("the id of another token", special("bos", 300, "<bos>"), {"HON020"}, options=DOCUMENT),
    Break(
        "an end token left out for genai",
        genai("model", "eos_token_id", value=[1]),
        {"HON021"},
        options=QUICK,
    ),
    Break(
        "a tokenizer that is too large",
        edit_json("tokenizer.json", lambda t: t["added_tokens"].append({"id": 600, "content": "<x>"})),
        {"HON022", "HON023"},
        options=OURS,
    ),
    Break(
        "a size that the tokenizer has not",
        edit_document(lambda d: d["package"]["tokenizer"].update(vocab_size=32000)),
        {"HON023"},
        options=DOCUMENT,
    ),
)


@pytest.mark.parametrize("broken", BREAKS, ids=str)
def test_a_broken_package_is_found_out(broken: Break, packages: Packages, tmp_path: Path) -> None:
    check(broken, packages, tmp_path)


def test_epsilons_that_nothing_states_are_onnxruntimes() -> None:
    from onnxruntime.capi import onnxruntime_pybind11_state as registered

    schemas = [s for s in registered.get_all_operator_schema() if s.name in EPSILONS]
    found = {
        s.name: onnx.AttributeProto.FromString(s.attributes["epsilon"]._default_value).f for s in schemas
    }
    assert found == pytest.approx(EPSILONS, rel=1e-6, abs=0)


@pytest.mark.parity
def test_settings_that_nothing_states_are_those_of_transformers() -> None:
    from transformers import GenerationConfig

    theirs = GenerationConfig._get_default_generation_params()
    assert {key: theirs[key] for key in DRAWN} == DRAWN


@pytest.mark.parametrize(
    ("said", "key", "token"),
    [
        ({"pad_token": "<0x00>"}, "pad_token_id", 24),  # of the plain vocabulary
        ({"model_specific_special_tokens": {"bos_token": "<|turn>"}}, "bos_token_id", 5),
    ],
)
def test_tokens_by_other_names(said: dict[str, Any], key: str, token: int, tmp_path: Path) -> None:
    source = copy(tmp_path / "source")
    edit_json("tokenizer_config.json", lambda data: data.update(said))(source)
    package = build(source, tmp_path / "package", precision="f32").path
    assert json.loads((package / "genai_config.json").read_bytes())["model"][key] == token
    assert not validate(package, **QUICK).findings


def test_true_evidence_is_none_the_worse(packages: Packages, tmp_path: Path) -> None:
    def how(package: Path) -> None:
        digest = json.loads((package / "provenance.json").read_bytes())["files"]["model.onnx"]["sha256"]
        evidence(passed=True, trials=[TRIAL], sha256={"model.onnx": digest})(package)
        verdict(findings=[], skipped={"HYG001": "needs the bytes of the weights"})(package)

    check(Break("true evidence", how, set(), options=OURS), packages, tmp_path)
