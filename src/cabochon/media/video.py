"""Videos for the vision encoder, frame by frame, as transformers' Gemma4VideoProcessor prepares them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cabochon.errors import RequestError
from cabochon.media.footage import Video, sampled
from cabochon.media.patches import Patching, stacked
from cabochon.media.video_file import Footage, load_video

__all__ = ["Footage", "Frames", "Video", "VideoProcessor", "clock", "load_video"]


@dataclass(frozen=True)
class Frames:
    """The frames of one video as the vision encoder takes them: each is an image.

    `pixel_values` f32 [frames, patches, 3 x patch_size^2] and `pixel_position_ids` i64 [frames, patches, 2] as those of
    `Images`; `tokens` soft tokens per frame; `timestamps` "mm:ss" per frame, which the prompt writes before it.
    """

    pixel_values: np.ndarray
    pixel_position_ids: np.ndarray
    tokens: tuple[int, ...]
    timestamps: tuple[str, ...]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class VideoProcessor:
    """The video_processor of processor_config.json. `num_frames` None takes every frame."""

    patching: Patching
    num_frames: int | None

    def __call__(
        self,
        video: Video | Footage,
        *,
        fps: float | None = None,
        timestamps: Sequence[float] | None = None,
        num_frames: int | None = None,
        max_soft_tokens: int | None = None,
        padded: bool = True,
    ) -> Frames:
        """Prepare one video: a Video, or what `load_video` takes, `fps` and `timestamps` with it.

        `num_frames`, `max_soft_tokens` (per frame, one of SOFT_TOKENS): other budgets for this call. `padded` as with
        images. Raises RequestError.
        """
        patching = self.patching.with_budget(max_soft_tokens)
        count = self.num_frames if num_frames is None else num_frames
        if count is not None and (type(count) is not int or count < 1):
            raise RequestError(f"{count!r}; expected a whole number above 0", at="num_frames")
        if not isinstance(video, Video):
            video = load_video(video, fps=fps, timestamps=timestamps, num_frames=count)
        indices = sampled(len(video.frames), count)
        cut = [patching(video.frames[i]) for i in indices]
        values, positions = stacked(cut, patching.max_patches if padded else len(cut[0][0]))
        tokens = len(cut[0][0]) // patching.pooling_kernel_size**2
        shown = tuple(clock(video.timestamps[i]) for i in indices)
        return Frames(values, positions, (tokens,) * len(cut), shown, video.remarks)


def clock(seconds: float) -> str:
    """Seconds as "mm:ss", rounded down; minutes grow past two digits after 100 of them."""
    return f"{int(seconds // 60):02d}:{int(seconds % 60):02d}"
