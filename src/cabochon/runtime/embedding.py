"""The embedding of a full package: token ids, and features in the place of placeholders, to what its decoder takes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from cabochon.errors import PackageError, RequestError
from cabochon.runtime.components import EMBEDDING, number, open_component, width
from cabochon.runtime.embedder import MADE
from cabochon.runtime.encoders import PORTS, Encoders
from cabochon.runtime.folder import Folder
from cabochon.runtime.graph import Value
from cabochon.runtime.host import held
from cabochon.runtime.ports import DTYPES, REBUILD, Ports
from cabochon.runtime.properties import peek
from cabochon.runtime.session import Session
from cabochon.runtime.soft import AUDIO, VISION, SoftToken, soft_tokens

ENCODERS = {"image": VISION, "video": VISION, "audio": AUDIO}


def open_session(folder: Folder, **options: Any) -> Session:
    """The decoder of a package with what it is fed by; `options` are those of `Graph`.

    Raises PackageError for a component that is missing, not as docs/architecture.md says, or not of one build.
    """
    if not folder.full:
        return Session(folder.graph, **options)
    names = [peek(folder.graph, key) or "" for key in ("target", "precision")]
    embedding = Embedding(folder, (names[0], names[1]), **options)
    session = Session(folder.graph, embedding, **options)
    embedding.check(session.ports)
    return session


class Embedding:
    """An Embedder that runs a graph. A placeholder without features is embedded as padding, as transformers does.

    Those are placeholders that the model draws itself.
    """

    def __init__(self, folder: Folder, built: tuple[str, str], **options: Any) -> None:
        """`built`: target and precision of the decoder."""
        self._at = f"{EMBEDDING}/{folder.graph.name}"
        self._graph = open_component(folder.path, EMBEDDING, built, **options)
        given, made = self._graph.inputs, self._graph.outputs
        self._made = tuple(made)
        self._hidden = width(made["inputs_embeds"])
        self._features = {name: given[port] for name, port in PORTS.items() if port in given}
        self._dtype = DTYPES[made["inputs_embeds"].type]
        ids = {kind: number(self._graph, f"{kind}_token_id") for kind in ENCODERS}
        self.placeholders: Mapping[str, int] = {k: i for k, i in ids.items() if i is not None}
        self._padding = number(self._graph, "pad_token_id") or 0
        self._check(folder)
        self.encoders = Encoders(folder, self._features, built, self._hidden, **options)
        self.images, self.clips, self.encode = self.encoders.images, self.encoders.clips, self.encoders.encode

    def feeds(self, rows: Sequence[Sequence[int]], ids: np.ndarray) -> Mapping[str, Value]:
        """See Embedder. Media are encoded here if they were not before."""
        tokens = list(soft_tokens(rows))
        self.encode([token.medium for token in tokens])
        self._require_own(tokens)
        fed = np.ascontiguousarray(self._without_bare(rows, ids))
        arrays = {"input_ids": fed}
        for encoder, port in self._features.items():
            features = [token.features for token in tokens if token.medium.encoder == encoder]
            arrays[port.name] = np.asarray(features, self._dtype).reshape(-1, self._hidden)
        _, made = self._graph.run(arrays, {}, [], dict.fromkeys(self._made))
        return {**made, "input_ids": held(fed)}

    def _require_own(self, tokens: Iterable[SoftToken]) -> None:
        """Raise RequestError for soft tokens of another package: neither their ids nor their rows would be noticed."""
        for token in tokens:
            if self.placeholders.get(token.kind) != int(token):
                raise RequestError(
                    f"a soft token of {token.kind} with id {int(token)}; expected {self.placeholders.get(token.kind)}",
                    at="prompt",
                    remedy="take the placeholders of this package",
                )
        for medium in {token.medium for token in tokens}:
            shape = () if medium.features is None else medium.features.shape
            if shape != (medium.tokens, self._hidden):
                raise RequestError(
                    f"features of shape {shape}; expected {(medium.tokens, self._hidden)}",
                    at=medium.encoder,
                    remedy="encode them with this package",
                )

    def _without_bare(self, rows: Sequence[Sequence[int]], ids: np.ndarray) -> np.ndarray:
        """The ids with padding where a placeholder stands for nothing."""
        bare = np.isin(ids, list(self.placeholders.values()))
        if not bare.any():
            return ids
        for place in np.argwhere(bare):
            bare[*place] = not isinstance(rows[place[0]][place[1]], SoftToken)
        return np.where(bare, self._padding, ids)

    def check(self, ports: Ports) -> None:
        """Raise PackageError where the decoder takes something else than is made here."""
        if set(ports.takes) - {"input_ids"} != set(self._made):
            raise PackageError(
                f"it makes {', '.join(self._made)}; the decoder takes {', '.join(sorted(ports.takes & MADE))}",
                at=self._at,
                remedy=REBUILD,
            )
        for name, port in self._graph.outputs.items():
            if ports.widths[name] != width(port):
                raise PackageError(
                    f"{name} is {width(port)} wide; the decoder takes {ports.widths[name]}",
                    at=self._at,
                    remedy=REBUILD,
                )

    def _check(self, folder: Folder) -> None:
        """Placeholders and ports of features belong together, and no feature is of another width."""
        expected = {ENCODERS[kind] for kind in self.placeholders}
        if expected != set(self._features):
            raise PackageError(
                f"it has placeholders for {sorted(self.placeholders)} and takes "
                f"{sorted(p.name for p in self._features.values())}; expected the same",
                at=self._at,
                remedy=REBUILD,
            )
        for port in self._features.values():
            if width(port) != self._hidden:
                raise PackageError(
                    f"{port.name} is {width(port)} wide; expected {self._hidden}, as inputs_embeds",
                    at=self._at,
                    remedy=REBUILD,
                )
