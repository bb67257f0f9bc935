"""Full packages of checkpoints whose processor files say less, or other things, than the published ones."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from PIL import Image

import cabochon
from cabochon import files
from cabochon.errors import PackageError
from cabochon.gemma4 import COMPONENTS
from cabochon.package import writer
from cabochon.validation import validate
from packages import TINY, Packages


def changed(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """A copy of the checkpoint with other words about its processors."""
    shutil.copytree(TINY / "target", folder, copy_function=shutil.copyfile)
    file = folder / "processor_config.json"
    said = json.loads(file.read_text())
    change(said)
    file.write_text(json.dumps(said))
    return folder


def least(said: dict[str, Any]) -> None:
    """What differs from transformers' defaults, and nothing else."""
    pixels = {"patch_size": 4, "max_soft_tokens": 70}
    said |= {"image_processor": pixels, "video_processor": pixels, "feature_extractor": {"feature_size": 16}}


def test_what_processors_leave_unsaid_is_transformers_default(packages: Packages, tmp_path: Path) -> None:
    """The same programs as of the file that says all of it."""
    built = cabochon.build(
        changed(tmp_path / "source", least), tmp_path / "p", model="full", precision="f32"
    ).path
    for name in ("inference_metadata.yaml", "image_processor.json", "audio_feature_extraction.json"):
        assert (built / name).read_bytes() == (packages("tiny-full") / name).read_bytes(), name
    assert not validate(built, quick=True).findings


def test_what_another_runtime_cannot_prepare_is_left_out_and_said(tmp_path: Path) -> None:
    def otherwise(said: dict[str, Any]) -> None:
        said["image_processor"] |= {"do_normalize": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
        said["feature_extractor"]["input_scale_factor"] = 2.0

    built = cabochon.build(
        changed(tmp_path / "source", otherwise), tmp_path / "p", model="full", precision="f32"
    ).path
    said = json.loads((built / "genai_config.json").read_text())["model"]
    assert said["vision"]["config_filename"] == said["speech"]["config_filename"] == ""
    assert (
        not (built / "image_processor.json").exists()
        and not (built / "audio_feature_extraction.json").exists()
    )
    status = (built / "METADATA_STATUS.md").read_text()
    assert (
        "cannot prepare image input as processor_config.json says" in status
        and "cannot prepare audio input" in status
    )
    assert not validate(built, quick=True).findings


def test_a_package_of_the_last_logits_alone(tmp_path: Path) -> None:
    built = cabochon.build(
        TINY / "target", tmp_path / "p", model="full", precision="f32", logits_to_keep=1
    ).path
    assert not validate(built, quick=True).errors
    whole = cabochon.load(built, threads=1).generate([2, 5, 6], greedy=True, max_new_tokens=4)
    assert len(whole.ids) == 4


@pytest.mark.parametrize(
    ("section", "key", "value", "message"),
    [
        (
            "image_processor",
            "patch_size",
            8,
            "image_processor.patch_size: is 8; expected 4, as vision_config has it",
        ),
        (
            "video_processor",
            "pooling_kernel_size",
            2,
            "video_processor.pooling_kernel_size: is 2; expected 3",
        ),
        (
            "feature_extractor",
            "feature_size",
            128,
            "feature_size: is 128; expected 16, as the audio tower has it",
        ),
    ],
)
def test_processors_of_another_checkpoint(
    tmp_path: Path, section: str, key: str, value: int, message: str
) -> None:
    """Said of the file, and not as a fault of what was written."""
    source = changed(tmp_path / "source", lambda said: said[section].update({key: value}))
    with pytest.raises(PackageError) as raised:
        cabochon.build(source, tmp_path / "p", model="full")
    assert message in str(raised.value) and raised.value.at.startswith("processor_config.json")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_no_full_package_without_a_processor(tmp_path: Path) -> None:
    source = changed(tmp_path / "source", least)
    (source / "processor_config.json").unlink()
    with pytest.raises(PackageError, match=r"the checkpoint has no processor_config\.json") as raised:
        cabochon.build(source, tmp_path / "p", model="full")
    assert raised.value.remedy == "copy them from the base model into its folder"


def test_ids_that_are_not_the_tokenizers_are_said_before_anything_is_written(tmp_path: Path):
    source = changed(tmp_path / "source", lambda said: None)
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(config | {"image_token_id": 20}))
    with pytest.raises(PackageError, match=r"is 20; the tokenizer has '<\|image\|>' at 8") as caught:
        cabochon.build(source, tmp_path / "out", model="full", license="apache-2.0")
    assert caught.value.at == "config.json: image_token_id" and not (tmp_path / "out").exists()


def test_a_medium_that_nobody_prepares_is_remarked_on(tmp_path: Path):
    source = changed(tmp_path / "source", lambda said: said.pop("video_processor"))
    built = cabochon.build(source, tmp_path / "out", model="full", license="apache-2.0")
    assert [line for line in built.remarks if "video" in line] == [
        "the processors' files do not say how to prepare video: cabochon takes none as files"
    ]


def test_what_is_unusual_of_sound_is_said_where_no_version_can_say_it(tmp_path: Path):
    source = changed(tmp_path / "source", lambda said: said["feature_extractor"].update(preemphasis=0.5))
    built = cabochon.build(source, tmp_path / "out", model="full", license="apache-2.0").path
    assert "preemphasis 0.5" in (built / "METADATA_STATUS.md").read_text()


def test_a_file_that_all_graphs_link_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[Path] = []
    real = writer.sha256
    monkeypatch.setattr(writer, "sha256", lambda path, advance: hashed.append(path) or real(path, advance))
    source = changed(tmp_path / "source", lambda said: None)
    built = cabochon.build(
        source, tmp_path / "p", model="full", precision="bf16", weights="link", license="apache-2.0"
    )
    data = [built.path / name / "model.onnx.data" for name in COMPONENTS]
    assert built.linked and all(file.samefile(source / "model.safetensors") for file in data)
    assert len(hashed) == 1
    assert not cabochon.validate(built.path).errors


def test_where_no_links_can_be_made_the_shared_table_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "hard_link", lambda source, name: "the file system has no links")
    built = cabochon.build(TINY / "target", tmp_path / "p", model="full", license="apache-2.0").path
    tables = [built / name / "model.embed_tokens.weight.data" for name in ("decoder", "embedding")]
    assert not tables[0].samefile(tables[1]) and tables[0].read_bytes() == tables[1].read_bytes()
    assert not cabochon.validate(built).errors


@pytest.mark.parametrize(("without", "medium"), [("audio_config", "image"), ("vision_config", "audio")])
def test_the_usage_of_the_card_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    without: str,
    medium: str,
) -> None:
    """Of a model that sees, and of one that only hears."""
    source = changed(tmp_path / "source", lambda said: None)
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(config | {without: None}))
    built = cabochon.build(source, tmp_path / "p", model="full", precision="f32", license="apache-2.0").path
    card = (built / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    assert f'"type": "{medium}"' in code and f"--{medium} FILE" in card
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (40, 30), "teal").save("photo.jpg")
    soundfile.write("speech.wav", np.linspace(-0.5, 0.5, 8000), 16_000)
    exec(compile(code.replace("PACKAGE", str(built)), "README.md", "exec"), {})
    assert capsys.readouterr().out.strip()


def test_a_model_without_encoders_says_so(packages: Packages) -> None:
    built = packages("unified-full")
    card, status = ((built / name).read_text() for name in ("README.md", "METADATA_STATUS.md"))
    for said in ("Each patch makes a row", "frames of 640 samples", "| Vision, without an encoder |"):
        assert said in card, said
    assert "log-mel" not in card and "frames of 640 samples" in status and "Sound is left out" in status
    found = json.loads((built / "provenance.json").read_text())["architecture_contracts"]
    assert found["audio"] == {"encoder_free": True, "samples_per_token": 640}
    assert found["vision"] == {
        "encoder_free": True, "hidden_size": 48, "patch_size": 12, "position_embedding_size": 128,
        "bidirectional_in_sliding_layers": True,
    }  # fmt: skip
    model = json.loads((built / "genai_config.json").read_text())["model"]
    assert model["type"] == "gemma4_unified" and model["speech"]["config_filename"]
