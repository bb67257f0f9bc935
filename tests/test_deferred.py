"""Modules that are loaded when first looked into."""

import subprocess
import sys
from pathlib import Path

import pytest

from packages import TINY


def said(code: str, *paths: Path) -> list[str]:
    """What a fresh Python prints, in which `paths` are searched for modules."""
    begin = f"import sys; sys.path[:0] = {[str(path) for path in paths]!r}\n"
    done = subprocess.run([sys.executable, "-c", begin + code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def rooms(tmp_path: Path) -> Path:
    """Modules that say when they are loaded."""
    (tmp_path / "heavy").mkdir()
    (tmp_path / "heavy" / "__init__.py").write_text("print('heavy is loaded')\nvalue = 7\n")
    (tmp_path / "heavy" / "inner.py").write_text("print('inner is loaded')\n")
    (tmp_path / "light.py").write_text("print('light is loaded')\n")
    return tmp_path


@pytest.mark.parametrize(
    ("use", "loaded"),
    [
        ("", []),
        ("heavy.value", ["heavy is loaded"]),
        ("from heavy import value", ["heavy is loaded"]),
        ("import heavy.inner; heavy.value", ["heavy is loaded", "inner is loaded"]),
        ("import light", ["light is loaded"]),
    ],
)
def test_what_is_deferred_is_loaded_at_the_first_look_and_once(rooms: Path, use: str, loaded: list[str]):
    code = f"from cabochon.deferred import defer\ndefer('heavy')\nimport heavy\nprint('then')\n{use}\n{use}"
    assert said(code, rooms) == ["then", *loaded]


def test_a_missing_module_is_missed_at_once():
    code = "from cabochon.deferred import defer\ndefer('nowhere')\n"
    code += "try: import nowhere\nexcept ImportError as error: print(error)"
    assert said(code) == ["No module named 'nowhere'"]


def test_building_never_loads_sympy(tmp_path: Path):
    """Half a second in every build and validation, for symbols that nobody computes with."""
    code = (
        "import cabochon\n"
        f"cabochon.build({str(TINY / 'target')!r}, {str(tmp_path / 'p')!r}, precision='f32', license='apache-2.0')\n"
        f"cabochon.validate({str(tmp_path / 'p')!r})\n"
        "print('onnx_ir' in sys.modules, 'sympy.core' in sys.modules)"
    )
    assert said(code) == ["True False"]


def test_symbols_are_computed_with_all_the_same():
    code = "import cabochon, onnx_ir\nprint(onnx_ir.SymbolicDim('a + 1') + 2)\n"
    code += "import sympy\nprint(sympy.Symbol('x') + 1)"
    assert said(code) == ["a + 3", "x + 1"]
