"""Every key that a processor's configuration may hold, and what becomes of it."""

__all__ = ["AUDIO_KEYS", "IMAGE_KEYS", "RAW_AUDIO_KEYS", "TOP_KEYS", "VIDEO_KEYS"]

_USED = "used"
_CLASS = "checked: names the class whose results these are"
_RESIZE = "checked to be absent or null: the patch budget says how large an image becomes"
_CROP = "checked to be absent, null or false: nothing is cropped or padded in pixels"
_CALL = "says how one call of transformers takes or returns things"
_COUNT = "an upper bound or an estimate; tokens are counted from the features themselves"

TOP_KEYS: dict[str, str] = {
    "image_processor": _USED,
    "feature_extractor": _USED,
    "video_processor": _USED,
    "processor_class": _CLASS,
    "image_seq_length": _COUNT,
    "audio_seq_length": _COUNT,
    "audio_ms_per_token": _COUNT,
    "auto_map": _CALL,
    "transformers_version": _CALL,
}

_PIXELS: dict[str, str] = {
    "patch_size": _USED,
    "pooling_kernel_size": _USED,
    "max_soft_tokens": _USED,
    "rescale_factor": _USED,
    "do_normalize": _USED,
    "image_mean": "used where do_normalize is true",
    "image_std": "used where do_normalize is true",
    "do_resize": "checked to be true",
    "do_rescale": "checked to be true",
    "do_convert_rgb": "checked to be true",
    "resample": "checked to be 3, bicubic",
    "size": _RESIZE,
    "crop_size": _CROP,
    "do_center_crop": _CROP,
    "do_pad": _CROP,
    "pad_size": _CROP,
    "default_to_square": "concerns `size`, which is absent",
    "data_format": _CALL,
    "input_data_format": _CALL,
    "device": _CALL,
    "disable_grouping": _CALL,
    "return_tensors": _CALL,
    "processor_class": _CLASS,
    "auto_map": _CALL,
}

IMAGE_KEYS: dict[str, str] = _PIXELS | {"image_processor_type": _CLASS, "image_seq_length": _COUNT}

VIDEO_KEYS: dict[str, str] = _PIXELS | {
    "video_processor_type": _CLASS,
    "num_frames": _USED,
    "do_sample_frames": _USED,
    "fps": "checked to be absent or null: num_frames says how many frames are taken",
    "return_metadata": _CALL,
    "video_metadata": _CALL,
}

_SOUND: dict[str, str] = {
    "feature_extractor_type": _CLASS,
    "sampling_rate": _USED,
    "padding_value": "checked to be 0",
    "padding_side": "checked to be right",
    "return_attention_mask": _CALL,
    "processor_class": _CLASS,
    "auto_map": _CALL,
}

AUDIO_KEYS: dict[str, str] = _SOUND | {
    "feature_size": _USED,
    "frame_length_ms": _USED,
    "hop_length_ms": _USED,
    "frame_length": "checked to be what frame_length_ms gives: transformers reads that",
    "hop_length": "checked to be what hop_length_ms gives: transformers reads that",
    "fft_length": "checked to be the power of two that transformers computes",
    "fft_overdrive": _USED,
    "min_frequency": _USED,
    "max_frequency": _USED,
    "mel_floor": _USED,
    "preemphasis": _USED,
    "preemphasis_htk_flavor": _USED,
    "input_scale_factor": _USED,
    "per_bin_mean": _USED,
    "per_bin_stddev": _USED,
    "dither": "checked to be 0: noise would make every run another",
}

RAW_AUDIO_KEYS: dict[str, str] = _SOUND | {
    "audio_samples_per_token": _USED,
    "feature_size": "checked to be audio_samples_per_token: transformers reads that",
}
