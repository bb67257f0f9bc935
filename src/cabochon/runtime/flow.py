"""Token by token to text: characters stay whole, and stop strings end the flow without being part of it."""

from collections.abc import Iterable, Sequence

from cabochon.runtime.tokens import Tokens


class Detokenizer:
    """Ids in, text out as soon as it is certain. The pieces in a row are the decoded ids.

    Bytes of a character come as tokens of their own, and the decoder judges a run of them as a whole, so a run is held
    back until another token ends it.
    """

    def __init__(self, tokens: Tokens) -> None:
        """Begin with nothing held."""
        self._tokens, self._said, self._held = tokens, [], []

    def add(self, token: int) -> str:
        """The text that became certain with this token; often empty."""
        if token in self._tokens.skipped:
            return ""
        self._held.append(token)
        return "" if self._tokens.is_byte(token) else self._release(final=False)

    def finish(self) -> str:
        """What is still held."""
        return self._release(final=True)

    def _release(self, final: bool) -> str:
        """Decode behind the last piece, since some decoders treat the first token of a text otherwise."""
        before = self._tokens.decode(self._said)
        text = self._tokens.decode([*self._said, *self._held])[len(before) :]
        if not self._held or (text.endswith("\ufffd") and not final):
            return ""
        self._said, self._held = self._held, []
        return text


class Stops:
    """Looks for stop strings in a flow of pieces; holds back an end that may become one."""

    def __init__(self, stops: Sequence[str]) -> None:
        """`stops` are strings; empty ones are ignored."""
        self._stops, self._held, self.found = [s for s in stops if s], "", False

    def add(self, piece: str) -> str:
        """The text that is certain not to belong to a stop string; `found` tells when one came."""
        if self.found:
            return ""
        self._held += piece
        places = [at for at in map(self._held.find, self._stops) if at >= 0]
        self.found = bool(places)
        return self._take(min(places) if places else len(self._held) - self._open_end())

    def finish(self) -> str:
        """What was held back, now that nothing follows."""
        return "" if self.found else self._take(len(self._held))

    def _take(self, count: int) -> str:
        text, self._held = self._held[:count], self._held[count:]
        return text

    def _open_end(self) -> int:
        """Length of the longest end of the held text that begins a stop string."""
        return max((n for stop in self._stops for n in _overlaps(self._held, stop)), default=0)


def _overlaps(text: str, stop: str) -> Iterable[int]:
    return (n for n in range(1, min(len(text), len(stop) - 1) + 1) if text.endswith(stop[:n]))
