"""The documents of full packages: what they say of components and media is what graphs, configs and processors say."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

import cabochon
from cabochon.checkpoint import open_checkpoint
from cabochon.dialects import TARGETS
from cabochon.errors import GraphError, PackageError
from cabochon.gemma4 import read_full_config
from cabochon.metadata import forms, versions, yaml
from cabochon.metadata.document import Branch, Document, Invoke, Loop, Workflow
from cabochon.metadata.folder import convert_package, open_full, open_pair
from cabochon.metadata.forms import convert, dump
from cabochon.metadata.full import COMPONENTS, Full, read_full
from cabochon.metadata.full_documents import full_document, full_loop, full_policies, served_full
from cabochon.metadata.full_notes import full_comments, unsaid
from cabochon.metadata.identity import identity
from cabochon.metadata.media_programs import preprocessing
from cabochon.metadata.pair import pair_document
from cabochon.metadata.ports import Ports, read
from cabochon.metadata.walking import parts
from cabochon.validation import validate
from full_graphs import TARGET
from packages import TINY, Packages

ENCODERS = {"vision_encoder": "image", "audio_encoder": "audio"}


@pytest.fixture(scope="module")
def full(packages: Packages) -> Full:
    return open_full(packages("tiny-full"))


@pytest.fixture(scope="module")
def sighted(packages: Packages) -> Full:
    """Of the kind whose images see themselves; no sound, no per-layer inputs."""
    return open_full(packages("big-full"))


def policies(full: Full) -> dict[str, Ports]:
    return {name: read(graph) for name, graph in full_policies(full).items()}


def workflow(document: Document) -> Workflow:
    assert document.pipeline
    return document.pipeline.workflow


def invoked(document: Document) -> list[Invoke]:
    return [part for _, part in parts(document) if isinstance(part, Invoke)]


def test_facts_are_the_graphs_and_the_configs(full: Full, sighted: Full) -> None:
    assert full.decoder.fed == ("inputs_embeds", "per_layer_inputs") and full.width == 64
    assert [member.artifact for member in full.members] == [
        "vision_encoder/model.onnx",
        "audio_encoder/model.onnx",
        "embedding/model.onnx",
    ]
    assert full.tokens == {
        "image_token_id": 8, "video_token_id": 13, "audio_token_id": 11, "boi_token_id": 7, "eoi_token_id": 9,
        "boa_token_id": 10, "eoa_token_id": 12,
    }  # fmt: skip
    assert sighted.decoder.fed == ("input_ids", "inputs_embeds") and sighted.audio is None


def test_components_with_their_real_ports(full: Full) -> None:
    found = workflow(full_document(full)).components
    assert list(found) == [
        "image_preprocess", "audio_preprocess", "vision_encoder", "audio_encoder", "embedding", "no_features",
        "decoder",
    ]  # fmt: skip
    for member in full.members:
        ports = found[member.name].ports
        for side, real in (("inputs", member.ports.inputs), ("outputs", member.ports.outputs)):
            said = {name: (c.dtype, c.shape) for name, c in getattr(ports, side).items()}
            assert said == {name: (port.dtype, port.shape) for name, port in real.items()}
    assert found["embedding"].ports.roles == {"input_ids": "token_ids", "inputs_embeds": "inputs_embeds"}
    assert found["decoder"].ports.roles["inputs_embeds"] == "inputs_embeds"
    assert "per_layer_inputs" in found["decoder"].ports.inputs
    for component, medium in ENCODERS.items():
        adapter = found[f"{medium}_preprocess"]
        assert adapter.ports.outputs == found[component].ports.inputs
        assert adapter.implementation.model_dump(exclude_none=True) == {
            "kind": "adapter", "abi": f"onnx-genai.{medium}-preprocess", "version": "1",
        }  # fmt: skip


def test_what_one_component_makes_another_takes(full: Full) -> None:
    document = full_document(full)
    by_name = {step.component: step for step in invoked(document)}
    embedding, decoder = by_name["embedding"], by_name["decoder"]
    assert embedding.inputs == {
        "input_ids": "request.input_ids", "image_features": "image.features", "audio_features": "audio.features",
    }  # fmt: skip
    for port in ("inputs_embeds", "per_layer_inputs"):
        assert decoder.inputs[port] == embedding.outputs[port]
    assert "input_ids" not in decoder.inputs


def test_the_decoder_of_images_that_see_themselves_gets_the_ids_too(sighted: Full) -> None:
    for document in (full_document(sighted), full_loop(sighted, policies(sighted))):
        steps = [step for step in invoked(document) if step.component in ("embedding", "decoder")]
        for embedding, decoder in zip(steps[::2], steps[1::2], strict=True):
            assert decoder.inputs["input_ids"] == embedding.inputs["input_ids"]
            assert decoder.inputs["inputs_embeds"] == embedding.outputs["inputs_embeds"]
            assert "per_layer_inputs" not in decoder.inputs


def test_media_are_optional(full: Full) -> None:
    flow = workflow(full_document(full))
    for component, medium in ENCODERS.items():
        given = flow.inputs[f"request.{medium}"]
        assert not given.required and given.present_as == f"request.{medium}_present"
        branch = next(s for s in flow.steps if isinstance(s, Branch) and s.predicate == given.present_as)
        ran = [step.component for _, step in parts(branch.cases["true"]) if isinstance(step, Invoke)]
        assert ran == [f"{medium}_preprocess", component]
        assert isinstance(branch.default, Invoke) and branch.default.component == "no_features"
    capabilities = dump(full_document(full), "v1")["pipeline"]["workflow"]["manifest"]["capabilities"]
    assert {"input_presence", "nested_control_flow"} <= set(capabilities)


def test_without_a_medium_there_are_no_rows(full: Full) -> None:
    graph = full_policies(full)["no_features"]
    session = ort.InferenceSession(ir.to_proto(graph).SerializeToString())
    (rows,) = session.run(None, {})
    assert rows.shape == (0, 64) and rows.dtype == np.float32


def test_the_loop_embeds_before_every_call(full: Full) -> None:
    (loop,) = workflow(full_loop(full, policies(full))).steps
    assert isinstance(loop, Loop)
    for steps, features in ((loop.setup, "image.features"), (loop.steps, "absent.features")):
        names = [step.component for step in steps if isinstance(step, Invoke)]
        assert names[names.index("embedding") + 1] == "decoder" and names.count("decoder") == 1
        embedding = next(s for s in steps if isinstance(s, Invoke) and s.component == "embedding")
        assert embedding.inputs["image_features"] == features


def test_the_released_runtime_gets_no_sound(full: Full) -> None:
    document = convert(served_full(full, policies(full)), "v1.8", ends=(1, 6)).document
    assert versions.check(document) == [] and document.preprocessing and document.preprocessing.audio is None
    flow = workflow(document)
    assert "audio_encoder" not in flow.components and "request.audio" not in flow.inputs
    assert {s.inputs["audio_features"] for s in invoked(document) if s.component == "embedding"} == {
        "absent.features"
    }
    roles = {getattr(given.role, "role", None) for given in flow.inputs.values()}
    assert {"eos_token_ids", "eos_token_lengths", "media"} <= roles and "package.eos_ids" not in flow.inputs
    tokens = (
        document.package.tokenizer.special_tokens if document.package and document.package.tokenizer else None
    )
    assert tokens and tokens.model_dump(exclude_none=True) == {
        "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": (1, 6), "image_token_id": 8, "video_token_id": 13,
        "audio_token_id": 11,
    }  # fmt: skip


def operations(program: Any) -> dict[str, dict[str, Any]]:
    return {each.op: each.model_dump(exclude_none=True) for each in program.transforms}


def processed(full: Full, section: str, **changes: Any) -> Any:
    processor = copy.deepcopy(dict(full.processor))
    processor[section] |= changes
    return preprocessing(replace(full, processor=processor))


def test_programs_say_what_the_processors_do(full: Full) -> None:
    found = preprocessing(full)
    assert found and found.image and found.audio
    image, audio = operations(found.image), operations(found.audio)
    assert image["resize"]["max_patches"] == image["pad"]["target_length"] == 70 * 3 * 3
    assert image["resize"]["interpolation"] == "bicubic" and image["rescale"]["scale"] == pytest.approx(
        1 / 255
    )
    assert (image["patchify"]["patch_size"], image["patchify"]["coordinate_order"]) == (4, "xy")
    assert "normalize" not in image, "do_normalize is false"
    assert found.image.outputs[1].pad_value == -1 and found.image.outputs[1].content == "patch_coordinates"
    assert audio["log_mel"] == {
        "op": "log_mel", "inputs": ("audio.downmix",), "outputs": ("audio.log_mel",), "sample_rate": 16000,
        "num_mel_bins": 16, "n_fft": 512, "hop_length": 160, "win_length": 320, "window": "hann", "mel_scale": "htk",
        "mel_floor": 0.001, "min_frequency": 0.0, "max_frequency": 8000.0,
    }  # fmt: skip


def test_programs_follow_the_processor(full: Full) -> None:
    found = operations(processed(full, "image_processor", max_soft_tokens=280, resample=2).image)
    assert (found["resize"]["max_patches"], found["resize"]["interpolation"]) == (2520, "bilinear")
    changed = processed(
        full, "image_processor", do_normalize=True, image_mean=[0.5] * 3, image_std=[0.25] * 3
    )
    assert operations(changed.image)["normalize"]["std"] == (0.25,) * 3
    assert "resize" not in operations(processed(full, "image_processor", do_resize=False).image)
    assert operations(processed(full, "feature_extractor", fft_length=1024).audio)["log_mel"]["n_fft"] == 1024


def test_a_number_that_is_missing_is_named(full: Full) -> None:
    with pytest.raises(PackageError) as raised:
        processed(full, "image_processor", patch_size=None)
    assert raised.value.at == "processor_config.json: image_processor.patch_size"


def test_comments_name_what_no_key_says(full: Full, sighted: Full) -> None:
    said = "\n".join(unsaid(full))
    for fact in (
        "3 x 3 patches",
        "8, between 7 and 9",
        "11, between 10 and 12",
        "160 zeros",
        "0.001",
        "by 8.0",
    ):
        assert fact in said, fact
    assert "must not be split over two calls" in "\n".join(unsaid(sighted)) and "recording" not in "\n".join(
        unsaid(sighted)
    )
    found = full_comments(full_document(full), full)
    assert "images and no sound" not in "\n".join(found[()])
    (line, *_) = found[("pipeline", "workflow", "components", "embedding")]
    assert "8 or 13" in line


def loaded(packages: Packages) -> dict[str, ir.Model]:
    return {name: ir.load(packages("tiny-full") / name / "model.onnx") for name in COMPONENTS}


def assembled(models: dict[str, ir.Model], **processor: Any) -> Full:
    raw = open_checkpoint(TARGET).config
    said = {"image_processor": {"a": 1}, "feature_extractor": {"a": 1}} | processor
    return read_full(models, read_full_config(raw).text, raw, None, {}, said)


def renamed(model: ir.Model, old: str, new: str) -> ir.Model:
    changed = ir.from_proto(ir.to_proto(model))
    next(v for v in (*changed.graph.inputs, *changed.graph.outputs) if v.name == old).name = new
    return changed


@pytest.mark.parametrize(
    "component, old, message",
    [
        ("vision_encoder", "image_features", "vision_encoder/model.onnx: image_features"),
        ("embedding", "audio_features", "audio_encoder/model.onnx: audio_features"),
        ("embedding", "per_layer_inputs", "embedding/model.onnx: per_layer_inputs"),
    ],
)
def test_graphs_that_do_not_fit(packages: Packages, component: str, old: str, message: str) -> None:
    models = loaded(packages)
    models[component] = renamed(models[component], old, "other")
    with pytest.raises(GraphError, match="is no port of both graphs") as raised:
        assembled(models)
    assert raised.value.at == message


def test_a_medium_without_a_processor(packages: Packages) -> None:
    models = loaded(packages)
    with pytest.raises(PackageError, match="takes audio input") as raised:
        assembled(models, feature_extractor={})
    assert raised.value.at == "processor_config.json: feature_extractor"
    with pytest.raises(PackageError, match="no graph of embedding"):
        assembled({"decoder": models["decoder"]})


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_in_both_forms(packages: Packages, target: str) -> None:
    full = open_full(packages("tiny-full", target, "f16"))
    for document in (full_document(full), full_loop(full, policies(full))):
        assert versions.check(convert(document, "v1").document) == []
    served = convert(served_full(full, policies(full)), "v1.8", ends=(1,)).document
    assert versions.check(served) == []
    serving = workflow(served).serving
    assert serving
    aliasing = {group.aliasing for group in serving.state_service.groups.values()}
    assert aliasing == {"permitted" if target in ("cuda", "webgpu") else "forbidden"}


def test_the_target_of_a_pair(full: Full) -> None:
    """A full package in a folder of another: every artifact in that folder, the decoder under its name."""
    inner = full.within("target")
    components = workflow(full_document(inner)).components
    found = {name: getattr(c.implementation, "artifact", None) for name, c in components.items()}
    assert found == {
        "image_preprocess": None, "audio_preprocess": None, "vision_encoder": "target/vision_encoder/model.onnx",
        "audio_encoder": "target/audio_encoder/model.onnx", "embedding": "target/embedding/model.onnx",
        "no_features": "target/policies/no_features.onnx", "target": "target/decoder/model.onnx",
    }  # fmt: skip


def test_a_pair_around_a_full_package(packages: Packages, tmp_path: Path) -> None:
    said: dict[str, Any] = {"precision": "f32", "license": "apache-2.0"}
    root = cabochon.build(packages("tiny-full"), tmp_path / "pair", assistant=TINY / "assistant", **said).path
    pair = open_pair(root)
    assert pair.full and pair.target.artifact == "target/decoder/model.onnx"
    written = (root / "inference_metadata.yaml").read_bytes()
    assert identity(yaml.read(written, "pair")) == identity(dump(pair_document(pair), "v1"))
    document = forms.read(written, "pair")
    names = [step.component for step in invoked(document)]
    assert names[-3:] == ["assistant", "embedding", "target"]
    assert not validate(root).findings
    served = convert_package(root, tmp_path / "served", "v1.8")
    assert served.dialect == "v1.8" and not any("could not be derived" in remark for remark in served.remarks)


@pytest.fixture(scope="module")
def unified(packages: Packages) -> Full:
    """Of the kind that has no encoders: patches and frames are tokens as they are."""
    return open_full(packages("unified-full"))


def test_programs_of_a_model_without_encoders(unified: Full) -> None:
    """Patches of 4 x 3 pixels, none of which is pooled; frames of samples that do not overlap."""
    found = preprocessing(unified)
    assert found and found.image and found.audio
    image, audio = operations(found.image), operations(found.audio)
    assert image["resize"]["max_patches"] == image["pad"]["target_length"] == 70
    assert (image["resize"]["patch_size"], image["resize"]["pooling_kernel_size"]) == (12, 1)
    assert (image["patchify"]["patch_size"], image["patchify"]["merge_size"]) == (12, 1)
    assert [each.op for each in found.audio.transforms] == [
        "decode", "resample", "downmix", "pad", "frame", "emit_validity_mask",
    ]  # fmt: skip
    assert audio["pad"] == {
        "op": "pad", "inputs": ("audio.downmix",), "outputs": ("audio.pad",), "mode": "right", "pad_value": 0.0,
        "size_multiple": 640,
    }  # fmt: skip
    assert (audio["frame"]["win_length"], audio["frame"]["hop_length"]) == (640, 640)
    assert audio["frame"]["inputs"] == ("audio.pad",)
    features, mask = found.audio.outputs
    assert (features.source, features.content) == ("audio.frame", "features")
    assert features.contract and features.contract.shape == ("clips", "time", 640)
    assert (mask.source, mask.content) == ("audio.emit_validity_mask", "validity_mask")


def test_what_no_key_says_of_a_model_without_encoders(unified: Full) -> None:
    said = "\n".join(unsaid(unified))
    for fact in ("one for each patch", "frames of 640 samples", "no spectrogram", "must not be split"):
        assert fact in said, fact
    assert "mel_floor" not in said and "x 1 patches" not in said


def test_the_released_runtime_gets_the_pictures_of_a_model_without_encoders(unified: Full) -> None:
    document = convert(served_full(unified, policies(unified)), "v1.8", ends=(1,)).document
    assert versions.check(document) == [] and document.preprocessing
    assert document.preprocessing.image and document.preprocessing.audio is None
