"""What a user shows and plays, as the encoders take it: files, arrays or bytes in, patches and log-mel features out.

The numbers are those of transformers' processors. Importing this room imports neither Pillow nor soundfile nor soxr.
"""

from cabochon.media.audio import AudioProcessor, Clips, load_audio
from cabochon.media.image import ImageProcessor, Images, load_image
from cabochon.media.patches import SOFT_TOKENS, Patching
from cabochon.media.processors import Processors, read_processors
from cabochon.media.spelled import spelled
from cabochon.media.video import Frames, Video, VideoProcessor, load_video

__all__ = [
    "SOFT_TOKENS", "AudioProcessor", "Clips", "Frames", "ImageProcessor", "Images", "Patching", "Processors", "Video",
    "VideoProcessor", "load_audio", "load_image", "load_video", "read_processors", "spelled",
]  # fmt: skip
