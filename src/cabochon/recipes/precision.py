"""The table of precisions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from cabochon.checkpoint import Tensor
from cabochon.packing import Scheme
from cabochon.packing.storage import Storage
from cabochon.recipes.addresses import address
from cabochon.recipes.cast import TYPES
from cabochon.recipes.part import Packing, Part, parts
from cabochon.recipes.recipe import Recipe
from cabochon.recipes.statistics import Statistics

if TYPE_CHECKING:  # both bring onnx_ir with them: a build writes weights while that is still being imported
    import onnx_ir as ir

    from cabochon.graph import Stored

__all__ = ["PRECISIONS", "Precision", "Rule", "Table", "Weight"]

Weight = Recipe | Part
HEAD = "lm_head.weight"  # what a table is called as a linear map


@dataclass(frozen=True)
class Rule:
    """How the weights are stored whose address fits `weights`: "decoder/mlp.*"; * and ? stand for any letters.

    `method` as in `packing.Scheme`, "" for weights that stay floating. `symmetric` None: as the target's kernels want.
    """

    weights: str
    method: str = ""
    bits: int = 0
    block: int = 0
    symmetric: bool | None = None


@dataclass(frozen=True)
class Table:
    """A weight that rows are taken of: how many numbers a stored row has, whether all of it is multiplied with too, and
    whether its rows are, once they are taken."""

    columns: int
    multiplied: bool
    rows_multiplied: bool = False

    @property
    def weighed(self) -> bool:
        """Whether a text says what its numbers are multiplied with."""
        return self.multiplied or self.rows_multiplied


@dataclass(frozen=True)
class Precision:
    """How weights are stored, and the type of activations, ports and of weights that no rule speaks of.

    Of `rules` the last that fits a weight decides. `statistics`: of a text, which guide the search of scales.
    `component` and `tables` are those of the model that it is used for, see `fitted`. Of a table that only rows are
    taken of, scales are of the type `looked_up`; other scales have the type of activations, as kernels want them.
    `symmetric_heads`: see `Storage`.
    """

    name: str
    activations: str
    rules: tuple[Rule, ...] = ()
    across: bool = False
    statistics: Statistics | None = field(default=None, compare=False)
    component: str = "decoder"
    tables: Mapping[str, Table] = field(default_factory=lambda: MappingProxyType({}))
    looked_up: str = "f16"
    symmetric_heads: bool = False

    @property
    def dtype(self) -> "ir.DataType":
        """The type of ports and activations."""
        from cabochon.graph import DTYPES

        return DTYPES[self.activations]

    @property
    def quantized(self) -> bool:
        """Whether any weight may be in blocks."""
        return any(rule.method for rule in self.rules)

    @property
    def methods(self) -> frozenset[str]:
        """How weights are put into blocks."""
        return frozenset(rule.method for rule in self.rules if rule.method)

    def on(self, storage: Storage) -> "Precision":
        """The same as a target stores it: nothing is left open."""
        if not self.quantized:
            return self
        rules = tuple(
            replace(rule, symmetric=rule.method == "nf4" or storage.symmetric)
            if rule.method and rule.symmetric is None
            else rule
            for rule in self.rules
        )
        activations = self.activations or storage.activations
        looked_up = "f16" if storage.half_tables else activations
        return replace(
            self,
            activations=activations,
            rules=rules,
            across=storage.across,
            looked_up=looked_up,
            symmetric_heads=storage.symmetric_heads,
        )

    def fitted(self, component: str, tables: Mapping[str, Table]) -> "Precision":
        """The same for the weights of a model that is one `component` beside its towers.

        A table that kernels would not read right as its rule says gets a rule of its own, and so does a tied head.
        """
        fitted = replace(self, component=component, tables=MappingProxyType(dict(tables)))
        return replace(fitted, rules=(*fitted.rules, *fitted._rules_of_tables()))

    def _rules_of_tables(self) -> Iterator[Rule]:
        for name, table in self.tables.items():
            scheme = self.scheme(name)
            if scheme is None or (self.symmetric_heads and table.multiplied and scheme.symmetric):
                continue
            if (fit := _looked_up(scheme, table.columns)) == scheme:
                continue
            for role in (name, HEAD) if table.multiplied else (name,):
                at = address(role, self.component)
                yield Rule(at, fit.method, fit.bits, fit.block, fit.symmetric)

    def scheme(self, name: str) -> Scheme | None:
        """How the 2-D weight of this canonical name is stored; None where it stays floating."""
        at = address(name, self.component)
        rule = next((rule for rule in reversed(self.rules) if fnmatchcase(at, rule.weights)), None)
        if rule is None or not rule.method:
            return None
        table = self.tables.get(name)
        scales = self.activations if table is None or table.multiplied else self.looked_up
        return Scheme(rule.method, rule.bits, rule.block, bool(rule.symmetric), scales)

    def importance(self, name: str) -> np.ndarray | None:
        """The mean squares of a weight's input channels, where they are known: f32 [input channels].

        None for a table that is only looked up, whatever its head is multiplied with.
        """
        if self.statistics is None or (name in self.tables and not self.tables[name].weighed):
            return None
        return self.statistics.mean_squares.get(name)

    def lies_across(self, name: str) -> bool:
        """Whether what is stored of a weight in blocks is [in, out]: not of a table that only rows are taken of."""
        return self.across and (name not in self.tables or self.tables[name].multiplied)

    def row_bytes(self, name: str, columns: int) -> int:
        """Bytes of a row of so many columns of a table, without its scales."""
        scheme = self.scheme(name)
        if scheme is None:
            return columns * TYPES[self.floating(name)].itemsize
        return scheme.blocks(columns) * scheme.block * scheme.bits // 8

    def weights(
        self,
        name: str,
        tensor: Tensor,
        columns: slice | None = None,
        rows: slice | None = None,
        *,
        of: str | None = None,
        width: int | None = None,
    ) -> tuple[Weight, ...]:
        """The tensors that a package stores of a weight, or of some columns and rows of a 2-D one, under `name`.

        Floats are rounded to nearest, ties to even. Writing raises TensorError where a finite value would become
        infinite.
        `of`: the name of the whole weight where that is another. `width`: see `Packing`; floats lie so anyway.
        """
        whole = of or name
        scheme = self.scheme(whole) if len(tensor.shape) == 2 else None
        if scheme is None:
            return (Recipe(name, tensor, self.floating(whole, tensor.dtype), columns, rows),)
        across = self.lies_across(whole)
        packing = Packing(tensor, scheme, columns, rows, width, across, self.importance(whole))
        return parts(name, packing, whole in self.tables)

    def floating(self, name: str, dtype: str = "") -> str:
        """The type of a weight that is not in blocks, of `dtype` in the checkpoint: that of activations.

        Beside weights in blocks a table that only rows are taken of is f16 where it may be: in f32 it would be most of
        the package.
        Integers (I64) are ids, not weights: they are stored as they are.
        """
        if dtype == "I64":
            return "i64"
        table = self.tables.get(name) if self.quantized else None
        return self.activations if table is None or table.multiplied else self.looked_up

    def store(
        self,
        name: str,
        tensor: Tensor,
        columns: slice | None = None,
        rows: slice | None = None,
        *,
        of: str | None = None,
        width: int | None = None,
    ) -> "tuple[Stored, ...]":
        """What `weights` says, as initializers of a graph."""
        from cabochon.graph import DTYPES, Stored

        return tuple(
            Stored(one.name, DTYPES[one.precision], one.shape, one.blocks, one.sources, one.span)
            for one in self.weights(name, tensor, columns, rows, of=of, width=width)
        )


def _looked_up(scheme: Scheme, columns: int) -> Scheme:
    """What GatherBlockQuantized reads right everywhere: rows with zero points, that fill whole bytes of them.

    Without any CUDA takes 0 for the middle (issue 31692 of onnxruntime); with an odd number of four bits in a row CUDA
    reads those of another row, and WebGPU refuses the shape. Then blocks are halved until it is even, or codes have
    8 bits.
    """
    if scheme.method == "nf4":
        return scheme
    smaller = [scheme.block >> i for i in range(4) if scheme.block >> i >= 16] if scheme.bits == 4 else []
    even = ((4, block) for block in smaller if -(-columns // block) % 2 == 0)
    bits, block = next(even, (8, min(scheme.block, 16 if columns <= 16 else 32)))
    return replace(scheme, bits=bits, block=block, symmetric=False)


_TABLES = "*/embed_tokens*"
_TOWERS = tuple(Rule(f"{tower}_encoder/*", "round", 8, 32, True) for tower in ("vision", "audio"))
_FOUR = Rule("*", "k-quant", 4, 32)
# Measured on the miniature (docs/calibration.md): what 8 bits cost least for, and what loses least by larger blocks.
_SENSITIVE = tuple(
    Rule(f"decoder/{role}", "round", 8, 32, True)
    for role in ("self_attn.v_proj", "self_attn.k_proj", "per_layer_projection", "per_layer_input_gate")
)
# Experts are looked up, for which there is no NF4, and chosen by a router, which 4 bits would make choose others.
_ROUTER = Rule("*/router.proj", "round", 8, 32, True)
_EXPERTS = Rule("*/experts.*", "k-quant", 4, 32, False)
_LAYERS = Rule("decoder/embed_tokens_per_layer", "k-quant", 4, 64, False)
_SEEDS = Rule("*", "k-quant", 4, 32, False)
_FLOAT_TOWERS = (Rule("*_encoder/*"),)

PRECISIONS = {
    precision.name: precision
    for precision in (
        Precision("f32", "f32"),
        Precision("f16", "f16"),
        Precision("bf16", "bf16"),
        Precision("Q8", "", (Rule("*", "round", 8, 32, True),)),
        Precision("Q4_K_M", "", (_FOUR, _LAYERS, *_SENSITIVE, _ROUTER, *_TOWERS)),
        Precision("Q4_K_M-uniform", "f16", (_SEEDS, _ROUTER, Rule(_TABLES), *_FLOAT_TOWERS)),
        Precision(
            "Q4_K_M-mixed",
            "f16",
            (
                _SEEDS,
                _ROUTER,
                *(
                    Rule(f"*/{role}", "round", 8, 32, False)
                    for role in ("mlp.*", "self_attn.o_proj", "lm_head")
                ),
                Rule(_TABLES),
                *_FLOAT_TOWERS,
            ),
        ),
        Precision("NF4", "", (Rule("*", "nf4", 4, 64, True), _ROUTER, _EXPERTS, Rule(_TABLES), *_TOWERS)),
    )
}
