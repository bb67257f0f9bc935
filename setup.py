"""What pyproject.toml cannot say: a C file is compiled where there is a compiler, and left out elsewhere."""

import os

from setuptools import Extension, setup

# The same bytes as numpy's: no fused multiply-add, no wider intermediate results. The last two change no result.
EXACT = [
    "-O3",
    "-g0",
    "-std=gnu11",
    "-fno-fast-math",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
]
ARGUMENTS = ["/O2", "/fp:precise"] if os.name == "nt" else EXACT
COMPILED = ("packing/kernel", "recipes/cast")


def extension(name: str) -> Extension:
    """`name_c` beside its source. Without it numpy does the same."""
    made, source = f"cabochon.{name.replace('/', '.')}_c", f"src/cabochon/{name}.c"
    return Extension(made, [source], extra_compile_args=ARGUMENTS, optional=True)


setup(ext_modules=[extension(name) for name in COMPILED])
