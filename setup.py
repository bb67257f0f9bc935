"""What pyproject.toml cannot say: a C file is compiled where there is a compiler, and left out elsewhere."""

import os

from setuptools import Extension, setup

# The same bytes as numpy's: no fused multiply-add, no wider intermediate results. The last two change no result.
EXACT = ["-O3", "-std=gnu11", "-fno-fast-math", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
KERNEL = Extension(
    "cabochon.packing.kernel_c",
    ["src/cabochon/packing/kernel.c"],
    extra_compile_args=["/O2", "/fp:precise"] if os.name == "nt" else EXACT,
    optional=True,  # without it packing runs in numpy
)

setup(ext_modules=[KERNEL])
