"""Full packages: a good one is told nothing; every rule on its components and media has a bad one that it finds out."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from broken import (
    Break,
    all_of,
    check,
    edit_bytes,
    edit_document,
    edit_graph,
    edit_json,
    remove,
    workflow,
    write,
)
from cabochon.checkpoint import Tensor
from cabochon.dialects import TARGETS
from cabochon.gemma4 import expected_shapes, trace_full
from cabochon.gemma4.full_names import tower_shapes
from cabochon.gemma4.layout import full_geometry
from cabochon.graph import Stored
from cabochon.metadata.folder import convert_package
from cabochon.recipes import PRECISIONS
from cabochon.validation import graph_files, validate
from packages import TINY, Packages

FULL, UNIFIED = ("tiny-full", "default", "f32"), ("unified-full", "default", "f32")
QUICK = {"quick": True, "select": ("FIL001", "PRT", "HON")}
EMBEDDING, VISION, AUDIO = (f"{name}/model.onnx" for name in ("embedding", "vision_encoder", "audio_encoder"))
How = Callable[[Path], object]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", ["tiny-full", "big-full"])
def test_a_good_package(packages: Packages, source: str, target: str) -> None:
    verdict = validate(packages(source, target))
    assert not verdict.errors, verdict.findings
    known = {"cuda": {"RUN002"}, "webgpu": {"RUN003"}}  # f32; the encoders' Loop, which runs on the CPU
    assert {f.code for f in verdict.warnings} == known.get(target, set())
    assert {"PRT010", "PRT011", "PRT012", "PRT013", "HON026", "HON027", "HON028", "HON029", "HON030"} <= set(
        verdict.rules
    )
    if target in ("default", "onnx-standard"):
        assert not verdict.findings, verdict.findings


def test_a_good_package_in_bf16(packages: Packages) -> None:
    """The kernels that convolve bf16 are CUDA's: the CPU has none to fall back on."""
    assert not validate(packages("tiny-full", "cuda", "bf16"), quick=True).errors


@pytest.mark.parametrize("source", ["tiny-full", "big-full"])
def test_what_is_converted_is_good_too(packages: Packages, source: str, tmp_path: Path) -> None:
    """The pass over the prompt runs on caches that are empty, before there are cells."""
    convert_package(packages(source), tmp_path / "served", "v1.8")
    assert not validate(tmp_path / "served", execute=True).findings


@pytest.mark.parametrize(("package", "source"), [(FULL, "target"), (UNIFIED, "unified")], ids=str)
def test_a_good_package_runs(packages: Packages, package: tuple[str, ...], source: str) -> None:
    """Text through both documents; two pictures and two recordings through encoders and embedding."""
    verdict = validate(packages(*package), execute=True, source=TINY / source)
    assert not verdict.findings, verdict.findings
    assert {"BEH002", "BEH015", "BEH017", "SRC001", "HON027", "HON028"} <= set(verdict.rules)


def ports(proto: onnx.ModelProto, side: str) -> dict[str, Any]:
    return {value.name: value for value in getattr(proto.graph, side)}


def renamed(side: str, old: str, new: str) -> Callable[[onnx.ModelProto], None]:
    """A port with another name, the nodes with it."""

    def change(proto: onnx.ModelProto) -> None:
        ports(proto, side)[old].name = new
        for node in proto.graph.node:
            for names in (node.input, node.output):
                names[:] = [new if name == old else name for name in names]

    return change


def half(side: str, name: str) -> Callable[[onnx.ModelProto], None]:
    def change(proto: onnx.ModelProto) -> None:
        ports(proto, side)[name].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16

    return change


def wider(side: str, name: str) -> Callable[[onnx.ModelProto], None]:
    def change(proto: onnx.ModelProto) -> None:
        ports(proto, side)[name].type.tensor_type.shape.dim[-1].dim_value += 1

    return change


def prop(key: str, value: str) -> Callable[[onnx.ModelProto], None]:
    def change(proto: onnx.ModelProto) -> None:
        next(entry for entry in proto.metadata_props if entry.key == key).value = value

    return change


def compared_with(old: int, new: int) -> Callable[[onnx.ModelProto], None]:
    """The embedding looks for another id."""

    def change(proto: onnx.ModelProto) -> None:
        names = {name for node in proto.graph.node if node.op_type == "Equal" for name in node.input}
        for tensor in proto.graph.initializer:
            if tensor.name in names:
                value = numpy_helper.to_array(tensor)
                tensor.CopyFrom(numpy_helper.from_array(np.where(value == old, new, value), tensor.name))

    return change


def epsilon(operator: str) -> Callable[[onnx.ModelProto], None]:
    """All norms of this operator add 0.01."""

    def change(proto: onnx.ModelProto) -> None:
        for node in proto.graph.node:
            for attribute in node.attribute if node.op_type == operator else ():
                if attribute.name == "epsilon":
                    attribute.f = 0.01

    return change


def without(folder: str) -> How:
    return lambda package: shutil.rmtree(package / folder)


def genai(part: str, **changes: Any) -> How:
    return edit_json("genai_config.json", lambda d: d["model"].setdefault(part, {}).update(changes))


def whole(**changes: Any) -> How:
    return edit_json("genai_config.json", lambda d: d["model"].update(changes))


def config(**changes: Any) -> How:
    return edit_json("config.json", lambda d: d.update(changes))


def transform(medium: str, op: str, /, **changes: Any) -> How:
    def change(document: dict[str, Any]) -> None:
        found = document["preprocessing"][medium]["transforms"]
        next(each for each in found if each["op"] == op).update(changes)

    return edit_document(change)


def attributes(name: str, *path: Any, **changes: Any) -> How:
    def change(data: Any) -> None:
        for key in path:
            data = data[key]
        data["operation"]["attrs"].update(changes)

    return edit_json(name, change)


def kind(name: str, operation: str) -> How:
    """An operation of another kind, with the same attributes."""
    return edit_bytes(name, lambda text: text.replace(f'"{operation}"'.encode(), b'"Another"'))


def card(old: str, new: str) -> How:
    def change(text: bytes) -> bytes:
        assert old.encode() in text, old
        return text.replace(old.encode(), new.encode())

    return edit_bytes("README.md", change)


def recorded(*path: str, value: Any) -> How:
    """Of provenance.json."""

    def change(data: dict[str, Any]) -> None:
        *outer, last = ("architecture_contracts", *path)
        for key in outer:
            data = data[key]
        data[last] = value

    return edit_json("provenance.json", change)


def processor(section: str, **changes: Any) -> How:
    return edit_json("processor_config.json", lambda d: d[section].update(changes))


def of(name: str, how: How, found: set[str], **options: Any) -> Break:
    return Break(name, how, found, FULL, options=options or QUICK)


def without_encoders(name: str, how: How, found: set[str], **options: Any) -> Break:
    """A break of the unified model."""
    return Break(f"unified: {name}", how, found, UNIFIED, options=options or QUICK)


BREAKS = (
    of("no vision encoder", without("vision_encoder"), {"FIL001", "PRT010"}),
    of("no embedding", without("embedding"), {"FIL001", "PRT010"}),
    of("no audio encoder", without("audio_encoder"), {"FIL001", "PRT010"}),
    of(
        "per-layer inputs under another name",
        edit_graph(renamed("output", "per_layer_inputs", "per_layer"), EMBEDDING),
        {"PRT001", "PRT002", "PRT011", "PRT013", "HON029"},
    ),
    of(
        "features that nothing makes",
        edit_graph(renamed("output", "image_features", "pooled"), VISION),
        {"PRT001", "PRT002", "PRT011", "HON029"},
    ),
    of("features in f16", edit_graph(half("output", "image_features"), VISION), {"PRT004", "PRT012"}),
    of("features too wide", edit_graph(wider("output", "audio_features"), AUDIO), {"PRT006", "PRT012"}),
    of(
        "embeddings too wide",
        edit_graph(wider("output", "inputs_embeds"), EMBEDDING),
        {"PRT006", "PRT012", "PRT013"},
    ),
    of("another id of an image in config.json", config(image_token_id=20), {"HON026"}),
    of("another id of an image in genai_config.json", whole(image_token_id=20), {"HON026"}),
    of("another id in the properties", edit_graph(prop("cabochon.image_token_id", "20"), EMBEDDING), {"HON026"}),
    of("another id of an image in the graph", edit_graph(compared_with(8, 20), EMBEDDING), {"HON026"}),
    of("another id of sound in the graph", edit_graph(compared_with(11, 20), EMBEDDING), {"HON026"}),
    of("an end of images that the tokenizer has not", config(eoi_token_id=20), {"HON026"}),
    of("larger patches", processor("image_processor", patch_size=8), {"HON027", "HON028"}),
    of("frames with larger patches", processor("video_processor", patch_size=8), {"HON027"}),
    of("other pooling", processor("image_processor", pooling_kernel_size=2), {"HON027", "HON028"}),
    of("another pooling in the graph", edit_graph(prop("cabochon.pooling_kernel_size", "2"), VISION), {"HON027"}),
    of("more bands", processor("feature_extractor", feature_size=128), {"HON027", "HON028"}),
    of("other layers of an encoder in the card", card("`num_hidden_layers=2`", "`num_hidden_layers=3`"), {"HON007"}),
    of("patches of the card", card("`patch_size=4`", "`patch_size=16`"), {"HON007"}),
    of("no encoder in the card", card("| Audio encoder |", "| Audio, without an encoder |"), {"HON007"}),
    of("another width of an encoder", recorded("audio", "hidden_size", value=64), {"HON001"}),
    of("a model without encoders", recorded("vision", "encoder_free", value=True), {"HON001"}),
    of("a processor that is not understood", processor("image_processor", sharpen=1), {"HON027"}),
    of("a budget of tokens for one of patches", transform("image", "resize", max_patches=70), {"HON028"}),
    of("padding to another length", transform("image", "pad", target_length=70), {"HON028"}),
    of("another hop", transform("audio", "log_mel", hop_length=320), {"HON028"}),
    of("another scale of mels", transform("audio", "log_mel", mel_scale="slaney"), {"HON028"}),
    of(
        "another budget",
        attributes("image_processor.json", "processor", "transforms", 1, max_soft_tokens=280),
        {"HON028"},
    ),
    of(
        "other frames",
        attributes("audio_feature_extraction.json", "feature_extraction", "sequence", 1, frame_length_ms=25.0),
        {"HON028"},
    ),
    of("an invented field", genai("vision", spatial_merge_size=2), {"HON029"}),
    of("a port that is none", genai("speech", inputs={"audio_embeds": "audio_embeds"}), {"HON029"}),
    of("other norms of sound", edit_graph(epsilon("RMSNormalization"), "audio_encoder/model.onnx"), {"HON035"}),
    of(
        "other norms behind convolutions of sound",
        edit_graph(epsilon("LayerNormalization"), "audio_encoder/model.onnx"),
        {"HON035"},
    ),
    of("other norms of images", edit_graph(epsilon("RMSNormalization"), "vision_encoder/model.onnx"), {"HON035"}),
    of("a list for a port", genai("speech", inputs={"audio_embeds": ["input_features"]}), {"HON029"}),
    of("an embedding that is left out", whole(embedding={}), {"HON029"}),
    of("the type of a text model", whole(type="gemma4_text"), {"HON029"}),
    of(
        "an encoder that the embedding asks for",
        all_of(without("audio_encoder"), config(audio_config=None)),
        {"FIL001", "PRT010"},
    ),
)  # fmt: skip


def described(section: str, **changes: Any) -> How:
    return edit_json("config.json", lambda d: d[section].update(changes))


def program(medium: str, change: Callable[[dict[str, Any]], object]) -> How:
    return edit_document(lambda document: change(document["preprocessing"][medium]))


def without_frames(said: dict[str, Any]) -> None:
    said["transforms"] = [each for each in said["transforms"] if each["op"] != "frame"]
    said["transforms"][-1]["inputs"] = ["audio.pad"]
    said["outputs"][0]["source"] = "audio.pad"


EXPERTS = {
    "representation": "dense_fallback", "routed_expert_count": 8, "shared_expert_count": 1, "experts_per_token": 2,
    "expert_intermediate_size": 32, "shared_expert_intermediate_size": 48, "activation": "gelu_pytorch_tanh",
    "router": {
        "score_function": "softmax", "selection_method": "top_k", "normalize_weights": True, "scaling_factor": 1.0,
    },
}  # fmt: skip
UNIFIED_BREAKS = tuple(without_encoders(*row) for row in (
    ("patches of another size", processor("image_processor", patch_size=8), {"HON027", "HON028"}),
    ("patches put together otherwise", processor("image_processor", pooling_kernel_size=2), {"HON027", "HON028"}),
    ("frames of video otherwise", processor("video_processor", patch_size=8), {"HON027"}),
    (
        "more patches than positions",
        processor("video_processor", max_soft_tokens=140),
        {"HON027"},
    ),
    (
        "shorter frames",
        processor("feature_extractor", feature_size=320, audio_samples_per_token=320),
        {"HON027", "HON028"},
    ),
    (
        "processors of a model with encoders",
        write("processor_config.json", (TINY / "target" / "processor_config.json").read_text()),
        {"HON027", "HON028"},
    ),
    (
        "a spectrogram among frames",
        processor("feature_extractor", feature_extractor_type="Gemma4AudioFeatureExtractor"),
        {"HON027"},
    ),
    ("another patch in config.json", described("vision_config", patch_size=16), {"HON027"}),
    ("encoders in the card", card("| Vision, without an encoder |", "| Vision encoder |"), {"HON007"}),
    ("shorter frames in the card", card("`samples_per_token=640`", "`samples_per_token=320`"), {"HON007"}),
    ("fewer positions in the record", recorded("vision", "position_embedding_size", value=64), {"HON001"}),
    ("an encoder in the record", recorded("audio", "encoder_free", value=False), {"HON001"}),
    (
        "images that are causal in the record",
        recorded("vision", "bidirectional_in_sliding_layers", value=False),
        {"HON001"},
    ),
    ("another vocabulary in config.json", described("text_config", vocab_size=513), {"HON010"}),
    ("fewer positions in config.json", described("vision_config", mm_posemb_size=64), {"HON027"}),
    ("shorter frames in config.json", described("audio_config", audio_embed_dim=320), {"HON027"}),
    ("encoders in config.json", described("vision_config", model_type="gemma4_vision"), {"HON027"}),
    (
        "fewer positions in the graph",
        edit_graph(prop("cabochon.position_embedding_size", "64"), VISION),
        {"HON027"},
    ),
    ("the budget of what is pooled", transform("image", "resize", max_patches=630), {"HON028"}),
    ("patches before they are one", transform("image", "patchify", patch_size=4, merge_size=3), {"HON028"}),
    ("a shorter frame", transform("audio", "frame", win_length=320), {"HON028"}),
    ("frames that overlap", transform("audio", "frame", hop_length=320), {"HON028"}),
    ("a fraction of a frame", transform("audio", "pad", size_multiple=128), {"HON028"}),
    ("another rate", transform("audio", "resample", sample_rate=8000), {"HON028"}),
    ("a spectrogram of frames", transform("audio", "frame", op="log_mel"), {"HON028"}),
    ("no frames", program("audio", without_frames), {"HON028"}),
    (
        "another tensor than the encoder takes",
        program("audio", lambda d: d["outputs"][0]["contract"]["shape"].__setitem__(2, 320)),
        {"HON028"},
    ),
    ("no frames for another runtime", kind("audio_feature_extraction.json", "Gemma4Audio"), {"HON028"}),
    ("no patches for another runtime", kind("image_processor.json", "Gemma4ImageTransform"), {"HON028"}),
    ("what nothing makes", program("image", lambda d: d["outputs"][0].update(source="image.tile")), {"HON028"}),
    (
        "shorter frames for another runtime",
        attributes("audio_feature_extraction.json", "feature_extraction", "sequence", 1, audio_samples_per_token=320),
        {"HON028"},
    ),
    (
        "a spectrogram for another runtime",
        edit_json("audio_feature_extraction.json", lambda d: d["feature_extraction"]["sequence"][1]["operation"].update(
            type="Gemma4LogMel", attrs={"feature_size": 640},
        )),
        {"HON028"},
    ),
    (
        "the type of a model with encoders",
        whole(type="gemma4"),
        {"HON029"},
    ),
    (
        "experts that there are not",
        edit_document(lambda d: d["model"].update(mixture_of_experts=EXPERTS)),
        {"HON034"},
    ),
))  # fmt: skip


@pytest.mark.parametrize("broken", BREAKS + UNIFIED_BREAKS, ids=str)
def test_a_broken_package_is_found_out(broken: Break, packages: Packages, tmp_path: Path) -> None:
    check(broken, packages, tmp_path)


def another_table(package: Path) -> None:
    """The table of the embedding and the head of the decoder are one file; now they are not."""
    file = package / "embedding" / "model.embed_tokens.weight.data"
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.unlink()
    file.write_bytes(data)


def spread_backwards(proto: onnx.ModelProto) -> None:
    """Features in the place of those before them: each index one less, the first row twice."""
    gather = next(n for n in proto.graph.node if n.op_type == "Gather" and "Concat" in n.input[0])
    proto.graph.initializer.append(numpy_helper.from_array(np.array(1, np.int64), "one"))
    index = list(proto.graph.node).index(gather)
    proto.graph.node.insert(index, onnx.helper.make_node("Sub", [gather.input[1], "one"], ["shifted"]))
    proto.graph.node.insert(index + 1, onnx.helper.make_node("Abs", ["shifted"], ["shifted.abs"]))
    gather.input[1] = "shifted.abs"


def unmasked(proto: onnx.ModelProto) -> None:
    """Every frame and every patch is real: what is told apart from padding is compared with itself."""
    for node in (node for node in proto.graph.node if node.op_type == "GreaterOrEqual"):
        node.input[1] = node.input[0]
    if proto.graph.input[-1].name == "input_features_mask":
        chosen = next(node for node in proto.graph.node if node.op_type == "NonZero")
        index, mask = list(proto.graph.node).index(chosen), chosen.input[0]
        proto.graph.node.insert(index, onnx.helper.make_node("Equal", [mask, mask], ["everything"]))
        proto.graph.node[index + 1].input[0] = "everything"


def neighbours(proto: onnx.ModelProto) -> None:
    """Rows of one frame behind the one that they should be of."""
    gather = next(node for node in proto.graph.node if node.op_type == "Gather")
    proto.graph.initializer.append(numpy_helper.from_array(np.array(1, np.int64), "one"))
    index = list(proto.graph.node).index(gather)
    proto.graph.node.insert(index, onnx.helper.make_node("Sub", [gather.input[1], "one"], ["before"]))
    gather.input[1] = "before"


MEDIA = {"execute": True, "quick": True, "select": ("BEH017",)}
READ = (
    of("another table than the head's", another_table, {"HON030"}, select=("HON030",)),
    of(
        "another table than the checkpoint's",
        another_table,
        {"SRC001"},
        select=("SRC",),
        source=TINY / "target",
    ),
    of("features of others", edit_graph(spread_backwards, EMBEDDING), {"BEH017"}, **MEDIA),
    of("features beside their places", edit_graph(compared_with(8, 20), EMBEDDING), {"BEH017"}, **MEDIA),
    without_encoders("padding is sound", edit_graph(unmasked, AUDIO), {"BEH017"}, **MEDIA),
    without_encoders("padding is patches", edit_graph(unmasked, VISION), {"BEH017"}, **MEDIA),
    without_encoders("the frames before", edit_graph(neighbours, AUDIO), {"BEH017"}, **MEDIA),
)


@pytest.mark.parametrize("broken", READ, ids=str)
def test_a_broken_package_is_found_out_by_its_weights_or_its_runs(
    broken: Break, packages: Packages, tmp_path: Path
) -> None:
    check(broken, packages, tmp_path)


def test_shared_weights_are_compared_where_weights_are_read(packages: Packages, tmp_path: Path) -> None:
    check(Break("quick", another_table, {"HON032"}, FULL, options={"quick": True}), packages, tmp_path)


def test_a_source_of_another_kind(packages: Packages) -> None:
    found = validate(packages(*FULL), source=TINY / "text", select=("SRC001",))
    assert [f.found for f in found.findings] == ["a component of a full package"]


def test_the_target_of_a_document_is_looked_at(packages: Packages, tmp_path: Path) -> None:
    """What the embedding makes is bound to the decoder under the wrong name."""

    def swap(document: dict[str, Any]) -> None:
        step = next(s for s in workflow(document)["steps"] if s.get("component") == "decoder")
        step["inputs"]["inputs_embeds"], step["inputs"]["per_layer_inputs"] = (
            step["inputs"]["per_layer_inputs"],
            step["inputs"]["inputs_embeds"],
        )

    how = edit_document(swap)
    check(
        Break("swapped", how, {"REF007"}, FULL, options={"quick": True, "select": ("REF", "PRT")}),
        packages,
        tmp_path,
    )


def test_a_missing_processor_file(packages: Packages, tmp_path: Path) -> None:
    how = remove("image_processor.json")
    found = check(Break("processor", how, {"FIL001"}, FULL, options={"quick": True}), packages, tmp_path)
    assert {f.at for f in found.findings} >= {"genai_config.json: model.vision.config_filename"}


def test_provenance_of_each_graph(packages: Packages, tmp_path: Path) -> None:
    how = edit_json(
        "provenance.json", lambda d: d["build"]["components"]["embedding"]["operators"].update(Gather=99)
    )
    found = check(Break("operators", how, {"HON002"}, FULL, options={"quick": True}), packages, tmp_path)
    assert [f.at for f in found.findings] == ["provenance.json: build.components.embedding.operators"]


def test_json_of_the_package_is_what_it_was(packages: Packages) -> None:
    """The breaks above change copies."""
    assert json.loads((packages(*FULL) / "config.json").read_bytes())["image_token_id"] == 8


@pytest.mark.parametrize("target", ["default", "webgpu"])
def test_constants_of_the_real_encoders_stay_in_the_graph(target: str) -> None:
    """In f32, where they are largest. What is larger than the rule allows is a matrix, which lies beside the graph."""
    raw = json.loads((Path(__file__).parent / "data" / "geometries" / "e2b.json").read_text())
    config = replace(full_geometry(raw), tokens={"image": 5, "video": 6, "audio": 7})
    shapes = expected_shapes(config.text) | tower_shapes(config)
    tensors = {
        name: Tensor(name, "BF16", shape, Path("nowhere"), 0, 2 * prod(shape))
        for name, shape in shapes.items()
    }
    models = trace_full(config, tensors, TARGETS[target], PRECISIONS["f32"])
    held = [
        value.const_value.nbytes
        for model in models.values()
        for graph in model.graphs()
        for value in graph.initializers.values()
        if not isinstance(value.const_value, Stored)
    ]
    assert 102_400 == max(held) <= graph_files._INLINE_LIMIT
