"""What a build sets in Python is set back, however the build ends."""

import gc
import sys

import pytest

from cabochon.package.interpreter import quick_turns, uncollected


def test_turns_are_short_while_weights_are_written() -> None:
    before = sys.getswitchinterval()
    with pytest.raises(OSError, match="full"), quick_turns():
        assert sys.getswitchinterval() < before
        raise OSError("full")
    assert sys.getswitchinterval() == before


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_it_was(enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(OSError, match="full"), uncollected():
            assert not gc.isenabled()
            raise OSError("full")
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()
