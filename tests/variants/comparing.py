"""A full package, component by component, against the NumPy oracle on the weights that its graphs hold."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

import quantized
from cabochon.checkpoint import open_checkpoint
from cabochon.gemma4.full_config import read_full_config
from cabochon.parity.dequantized import read_dequantized
from cabochon.parity.widened import widen
from full_graphs import TEXT, Components, Truth, padded, picture
from graphs import difference
from variants.runtimes import Arrays, Running

COMPONENTS = ("decoder", "embedding", "vision_encoder", "audio_encoder")
Open = Callable[[Path], Running]


class OnDisk(Components):
    """The components of a package as a runtime has opened them, each when it is first asked for."""

    def __init__(self, checkpoint: Path, graphs: dict[str, Path], runtime: Open) -> None:
        self.config = read_full_config(open_checkpoint(checkpoint).config)
        self.text, self._graphs, self._runtime = self.config.text, graphs, runtime
        self._opened: dict[str, Running] = {}
        self.dtype = self.opened("decoder").inputs["inputs_embeds"].type

    def opened(self, name: str) -> Running:
        if name not in self._opened:
            self._opened[name] = self._runtime(self._graphs[name])
        return self._opened[name]

    def run(self, name: str, feeds: Arrays) -> Arrays:
        return self.opened(name).run(feeds)

    def ports(self, name: str) -> list[str]:
        return list(self.opened(name).inputs)


class Expected:
    """What the components of a checkpoint make of two pictures, a clip and a prompt that holds both."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint, self._truth = checkpoint, Truth(checkpoint)

    def differences(
        self, stored: dict[str, Path], graphs: dict[str, Path], runtime: Open
    ) -> dict[str, float]:
        """max |difference| / max of each component, fed with the oracle's; `stored` has the ONNX graphs whose
        weights in blocks the oracle takes, `graphs` those that run."""
        truth = Truth(self.checkpoint)
        truth.weights = quantized.Stand(self._truth.weights, read_dequantized(*stored.values()), TEXT)
        whole = OnDisk(self.checkpoint, graphs, runtime)
        pictures = padded([picture(truth, 6, 3), picture(truth, 3, 9)], 27)
        sound = np.random.default_rng(3).normal(-2, 2, (1, 21, 16)).astype(np.float32), np.ones((1, 21), bool)
        images, sounds = truth.images(*pictures), truth.clips(*sound)
        ids = np.concatenate([[2, 30], [8] * len(images), [40, 50], [11] * len(sounds), [60]])
        fed = whole.embed(ids, images.astype(whole.dtype), sounds.astype(whole.dtype))
        x, extras = truth.embed(ids, images, sounds)
        assert extras is not None
        return {
            "vision_encoder": difference(whole.images(*pictures), images),
            "audio_encoder": difference(whole.clips(*sound), sounds),
            "embedding": max(
                difference(fed["inputs_embeds"][0], x),
                difference(fed["per_layer_inputs"][0], extras.reshape(len(x), -1)),
            ),
            "decoder": difference(whole.decode(ids, fed)["logits"][0], truth.logits(ids, images, sounds)),
        }


def graphs(package: Path, name: str = "model.onnx") -> dict[str, Path]:
    """The graph of each component of a full package."""
    return {component: package / component / name for component in COMPONENTS}


def twins(package: Path, folder: Path) -> dict[str, Path]:
    """The same of its twin in f32: its own graphs and bytes, widened."""
    return {name: widen(graph.parent, folder / name) for name, graph in graphs(package).items()}
