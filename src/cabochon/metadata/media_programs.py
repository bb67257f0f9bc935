"""How images and sound become what the encoders take: the programs of processor_config.json as generic operations.

Patches are counted before they are pooled: a budget of soft tokens is pooling² times as many patches.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cabochon.errors import PackageError
from cabochon.metadata.document import (
    AudioOutput,
    AudioProgram,
    AudioTransform,
    ImageOutput,
    ImageProgram,
    ImageTransform,
    Preprocessing,
)
from cabochon.metadata.ports import Port
from cabochon.metadata.tensors import contract

if TYPE_CHECKING:
    from cabochon.metadata.full import Full, Medium

__all__ = ["SAMPLES", "preprocessing"]

SAMPLES = "audio_samples_per_token"  # of processors that cut sound into frames of samples; others make a spectrogram
_AT = "processor_config.json"
_RESAMPLING = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}  # of Pillow
_IMAGE = {"pixel_values": "pixels", "pixel_position_ids": "patch_coordinates"}
_FEATURES = {
    "log_mel": "audio_features",
    "frame": "features",
}  # what makes them -> what the format calls them
_PADDED = -1  # the coordinates of a patch that is none

Operation = dict[str, Any]


@dataclass(frozen=True)
class _Section:
    """One section of processor_config.json."""

    name: str
    values: Mapping[str, Any]

    def __getitem__(self, key: str) -> Any:
        if (value := self.values.get(key)) is None:
            raise PackageError("nothing is said; expected a number", at=f"{_AT}: {self.name}.{key}")
        return value


def preprocessing(full: "Full") -> Preprocessing | None:
    """The program of each medium that the model takes; None for a model that takes none."""
    programs: dict[str, Any] = {}
    if full.vision:
        operations = list(_on_images(_Section("image_processor", full.section("image"))))
        taken = full.vision.ports.inputs
        programs["image"] = ImageProgram(
            transforms=tuple(ImageTransform(**each) for each in _chained("image", operations)),
            outputs=tuple(_image_output(taken[name], content) for name, content in _IMAGE.items()),
        )
    if full.audio:
        operations = list(_on_sound(_Section("feature_extractor", full.section("audio"))))
        taken = full.audio.ports.inputs
        made = operations[-2]["op"]
        programs["audio"] = AudioProgram(
            transforms=tuple(AudioTransform(**each) for each in _chained("audio", operations)),
            outputs=(
                _audio_output(taken["input_features"], made, _FEATURES[made]),
                _audio_output(taken["input_features_mask"], "emit_validity_mask", "validity_mask"),
            ),
        )
    return Preprocessing(**programs) if programs else None


def _on_images(said: _Section) -> Iterator[Operation]:
    patch, pooling = said["patch_size"], said["pooling_kernel_size"]
    yield {"op": "decode_rgb"}
    if said["do_resize"]:
        yield {
            "op": "resize",
            "mode": "aspect_ratio_patch_budget",
            "interpolation": _RESAMPLING[said["resample"]],
            "max_patches": said["max_soft_tokens"] * pooling**2,
            "patch_size": patch,
            "pooling_kernel_size": pooling,
        }
    if said["do_rescale"]:
        yield {"op": "rescale", "scale": said["rescale_factor"]}
    if said["do_normalize"]:
        yield {"op": "normalize", "mean": tuple(said["image_mean"]), "std": tuple(said["image_std"])}
    yield {
        "op": "patchify",
        "patch_size": patch,
        "merge_size": pooling,  # so many patches on a side become one token
        "channel_order": "channels_last",
        "patch_order": "raster",
        "coordinate_order": "xy",
        "flatten": True,
    }
    yield {"op": "emit_patch_coordinates"}
    yield {
        "op": "pad",
        "inputs": ("image.patchify", "image.emit_patch_coordinates"),
        "outputs": ("image.padded_patches", "image.padded_coordinates"),
        "pad_value": 0.0,
        "target_length": said["max_soft_tokens"] * pooling**2,
    }


def _on_sound(said: _Section) -> Iterator[Operation]:
    yield {"op": "decode"}
    yield {"op": "resample", "sample_rate": said["sampling_rate"]}
    yield {"op": "downmix", "channels": 1}
    yield from _framed(said) if SAMPLES in said.values else _spectrogram(said)
    yield {"op": "emit_validity_mask"}


def _framed(said: _Section) -> Iterator[Operation]:
    """Frames of samples as they are, none of which is in two. The format has `size_multiple` for images alone."""
    length = said[SAMPLES]
    yield {"op": "pad", "mode": "right", "pad_value": 0.0, "size_multiple": length}
    yield {"op": "frame", "win_length": length, "hop_length": length}


def _spectrogram(said: _Section) -> Iterator[Operation]:
    """Keys behind `mel_scale` are those of processor_config.json: the format has none for what they say."""
    yield {
        "op": "log_mel",
        "sample_rate": said["sampling_rate"],
        "num_mel_bins": said["feature_size"],
        "n_fft": said["fft_length"],
        "hop_length": said["hop_length"],
        "win_length": said["frame_length"],
        "window": "hann",
        "mel_scale": "htk",
        **{key: said[key] for key in ("mel_floor", "min_frequency", "max_frequency")},
    }


def _chained(medium: "Medium", operations: list[Operation]) -> Iterator[Operation]:
    """Each operation on what the one before it made, unless it says on what."""
    for i, operation in enumerate(operations):
        before = {"inputs": (f"{medium}.{operations[i - 1]['op']}",)} if i else {}
        yield {**before, "outputs": (f"{medium}.{operation['op']}",), **operation}


def _image_output(port: Port, content: str) -> ImageOutput:
    coordinates = content == "patch_coordinates"
    made = ImageOutput(
        name=f"image.{port.name}",
        content=content,
        dtype=contract(port).dtype,
        source="image.padded_coordinates" if coordinates else "image.padded_patches",
        contract=contract(port),
    )
    return made.model_copy(update={"pad_value": float(_PADDED)}) if coordinates else made


def _audio_output(port: Port, operation: str, content: str) -> AudioOutput:
    return AudioOutput(
        name=f"audio.{port.name}",
        content=content,
        dtype=contract(port).dtype,
        source=f"audio.{operation}",
        contract=contract(port),
    )
