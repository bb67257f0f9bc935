"""From a checkpoint to a package on disk: staged, streamed, described, checked, renamed."""

from cabochon.package.build import Built, build
from cabochon.package.writer import Progress

__all__ = ["Built", "Progress", "build"]
