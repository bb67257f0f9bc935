"""Fixtures of all rooms."""

import gc
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import remembered
from packages import TINY, Packages
from pairs import Pairs

# A shell that is not interactive starts `command &` with SIGINT ignored, and so do some CI runners. Python keeps that,
# and so do the child processes that tests interrupt. A handler is not inherited: they start with the default.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Slow for how few tests they hold. Workers take whole files, so that one of these at the end would run alone.
FIRST = {
    "test_readme.py", "test_wheel.py", "test_parity_full.py", "test_parity_drafters.py", "test_parity_ranges.py",
    "test_parity_checking.py", "test_parity_family.py", "test_package_build.py", "test_package_pair.py",
    "test_package_full_package.py", "test_bench.py", "test_dialects_row_tables.py", "test_demo.py",
    "test_full_mutations.py", "test_calibration_calibrate.py", "test_evaluation_recording.py",
}  # fmt: skip


# What a test writes need not outlast a crash of the machine. The 34 calls of a build took 0.06 to 0.5 s, in which its
# worker did nothing else. Children wait for the disk all the same, and test_files.py holds that it is asked to write.
os.fsync = os.fdatasync = lambda fd: None

# Of seven thousand tests and what they import nothing becomes garbage: it is not looked at again and again.
gc.set_threshold(20_000, 20, 20)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where workers share the files (with --no-loadscope-reorder), the slow ones first, then by their tests."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        tests = Counter(item.path for item in items)
        items.sort(key=lambda item: (item.path.name not in FIRST, -tests[item.path]))


@pytest.fixture(scope="session", autouse=True)
def _remembered() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        remembered.install(patch)
        yield


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    """Built packages, which the workers of a run share, and loaded models by (source, target, precision); see
    tests/packages.py."""
    own = tmp_path_factory.getbasetemp()
    root = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "packages"
    root.mkdir(exist_ok=True)
    return Packages(root)


@pytest.fixture(scope="session")
def pairs(packages: Packages) -> Pairs:
    """Pairs of a target and its drafter; see tests/pairs.py."""
    return Pairs(packages)


@pytest.fixture(scope="session")
def recorded() -> dict[str, Any]:
    """What the reference generated from the tiny checkpoints: prompt and tokens by name."""
    return json.loads((TINY / "ref" / "outputs.json").read_text())


@pytest.fixture
def package(packages: Packages) -> Path:
    """The tiny text package, target default, f32."""
    return packages()


@pytest.fixture
def model(packages: Packages) -> Any:
    """The tiny text model, target default, f32, with nothing kept from a test before."""
    model = packages.model()
    model.forget()
    return model
