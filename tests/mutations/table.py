"""The mistakes: known pitfalls of the family, written as changes of the lines that do it right."""

from dataclasses import dataclass

__all__ = ["MUTATIONS", "Mutation"]

VISION, AUDIO, EMBEDDING, DECODER = "vision_encoder", "audio_encoder", "embedding", "decoder"
EXPERTS, PATCHES, SAMPLES = "experts", "vision_embedder", "audio_embedder"
Change = tuple[str, str, str]  # a module of cabochon, what stands there once, what stands there instead


@dataclass(frozen=True)
class Mutation:
    """`what` is wrong in a `component`, and by which changes."""

    component: str
    what: str
    changes: tuple[Change, ...]


def _in(component: str, module: str, *mistakes: tuple[str, str, str]) -> tuple[Mutation, ...]:
    return tuple(Mutation(component, what, ((module, right, wrong),)) for what, right, wrong in mistakes)


_TURNED = "by_x, by_y = (g.rope(g.Gather(places, axis, axis=2), turns, like) for axis in (0, 1))"
_WHOLE = """
    angles = [g.Unsqueeze(g.cast(g.Gather(places, axis, axis=2), "f32"), [2]) * g.constant(turns) for axis in (0, 1)]
    whole = g.Concat(*angles, axis=2)
    return lambda x: g.turn(x, g.CastLike(g.Cos(whole), like), g.CastLike(g.Sin(whole), like))
"""
_SQUARE = "square = column / k + columns * (row / k)"
_ROWS = "((g.ReduceMax(row, [1], keepdims=1) + 1) / k)"
_CUT = "lowest = tokens.positions - how.window"
_AHEAD = "return inside * (g.GatherElements(ends, number, axis=1) - columns)"
_BEHIND = """starts = g.ScatterElements(number * 0, number, inside * (1 - before) * columns, axis=1, reduction="max")
    g.behind = inside * (columns - g.GatherElements(starts, number, axis=1))
    """
_VALUES = 'heads("k_proj" if layer.k_eq_v else "v_proj", layer.kv_heads, None)'
_MIXED = 'mixture(g, w, c.experts, c.eps, x, norm(x, "pre_feedforward_layernorm_2"))'
_ADDED = 'norm(h, "post_feedforward_layernorm_1") + norm(mixed, "post_feedforward_layernorm_2")'
_SCORES = 'g.linear(g.rms_norm(x, None, eps) * r["scale"] * x.dims[-1] ** -0.5'
_PER_EXPERT = ' * g.cast(g.Gather(r["per_expert_scale"], which), "f32")'
_SHARES = f"shares = best / g.ReduceSum(best, [-1]){_PER_EXPERT}"
_SCALED_FIRST = f"best = best{_PER_EXPERT}\n    shares = best / g.ReduceSum(best, [-1])"
_HALVES = (
    'gate, up = g.Split(g.multiply(x, rows("gate_up_proj", 2 * c.width)), axis=-1, num_outputs=2, outputs=2)'
)
_PAIRS = """both = g.Reshape(g.multiply(x, rows("gate_up_proj", 2 * c.width)), [0, c.width, 2])
    gate, up = (g.Gather(both, i, axis=2) for i in (0, 1))"""
_ROWS_OF = "e * count + np.arange(count)"
_GATED = "g.multiply(g.gelu(gate) * up,"
_FIRST = 'layer_norm(g, e / "patch_ln1", rows(g, pixels, real))'
_PLACED = 'layer_norm(g, e / "patch_ln2", x) + placed(g, e, rows(g, places, real))'
_PLACES_NORMED = f'{_PLACED}\n    x = layer_norm(g, e / "pos_norm", x)'
_TABLE = 'g.GatherND(w["pos_embedding"],'
_BY_AXIS = f"""table = g.Reshape(w["pos_embedding"], [2, -1, w["pos_embedding"].dims[2]])
    return g.ReduceSum({_TABLE.replace('w["pos_embedding"]', "g.Transpose(table, perm=[1, 0, 2])")}"""
_NORMED = 'g.cast(g.rms_norm(g.cast(x, "f32"), None, eps), w.store.dtype)'
_REAL_ROWS = "kept = g.Squeeze(g.NonZero(g.Reshape(real, [-1])), [0])"
_PADDING_TOO = _REAL_ROWS.replace("g.Reshape(real, [-1])", "g.Reshape(g.Or(real, g.Not(real)), [-1])")
_CLIPPED = (
    ("linear maps not clipped", "if not clipped:", "if True:"),
    ("inputs of linear maps not clipped", 'g.between(x, w["input_min"], w["input_max"])', "x"),
    ("outputs of linear maps not clipped", 'g.between(y, w["output_min"], w["output_max"])', "y"),
)

MUTATIONS: tuple[Mutation, ...] = (
    *_in(
        EMBEDDING, "gemma4.embedding",
        ("per-layer inputs of embeddings without features",
            "extras = per_layer_inputs(g, m, text, extras, x)",
            "extras = per_layer_inputs(g, m, text, extras, rows(ids))"),
        ("per-layer inputs looked up with placeholder ids",
            "g.Where(g.Unsqueeze(padded, [2, 3]), layer_rows(g, m, text, padding), extras)", "extras"),
        ("features scaled by √H as tokens are", "g.Concat(nothing, features, axis=0)",
            "g.Concat(nothing, features * 8.0, axis=0)"),
        ("features counted anew in each row", "g.CumSum(g.cast(g.Reshape(here, [-1]), \"i64\"), 0)",
            "g.CumSum(g.cast(here, \"i64\"), 1)"),
        ("features spread column by column",
            "number = g.CumSum(g.cast(g.Reshape(here, [-1]), \"i64\"), 0)  # 1 for the first\n"
            "    number = g.Where(here, g.Reshape(number, g.Shape(here)), 0)",
            "turned = g.Transpose(here, perm=[1, 0])\n"
            "    number = g.CumSum(g.cast(g.Reshape(turned, [-1]), \"i64\"), 0)\n"
            "    number = g.Where(here, g.Transpose(g.Reshape(number, g.Shape(turned)), perm=[1, 0]), 0)"),
        ("the first feature left out", "g.Where(here, g.Reshape(number, g.Shape(here)), 0)",
            "g.Where(here, g.Reshape(number, g.Shape(here)) - 1, 0)"),
    ),
    *_in(
        EMBEDDING, "gemma4.decoder",
        ("tokens of the per-layer table not scaled by √P", "ids, c.per_layer_input**0.5, len", "ids, 1.0, len"),
        ("the projection of embeddings not normed",
            'g.rms_norm(projected, w["per_layer_projection_norm.weight"], c.eps)', "projected * 1.0"),
        ("the projection of embeddings not scaled by 1/√H", " * c.hidden**-0.5", " * 1.0"),
        ("per-layer inputs not divided by √2", "(projected + rows) * 2**-0.5", "projected + rows"),
    ),
    *_in(
        DECODER, "gemma4.decoder",
        ("tokens of an image do not see each other", "None if ids is None else ahead(g, ids, vision_ids)", "None"),
        ("tokens of an image see each other on full layers too",
            "None if layer.window is None else ahead)", "ahead)"),
        ("all vision tokens are one image", "number = g.CumSum(inside * (1 - before), np.int64(1))",
            "number = g.CumSum(inside * (1 - before), np.int64(1)) * 0 + 1"),
        ("an image sees the token behind it too", _AHEAD, _AHEAD.replace("- columns", "- columns + 1")),
        ("the last token of an image is not seen ahead", _AHEAD,
            _AHEAD.replace("inside * (", "g.Max(inside * (").replace("- columns)", "- columns - 1), np.int64(0))")),
    ),
    Mutation(
        DECODER, "an image is not cut by the window",
        (
            ("gemma4.decoder", _AHEAD, _BEHIND + _AHEAD),
            ("dialects.standard", _CUT,
                "window = how.window if how.ahead is None else self.Max(self.behind + 1, np.int64(how.window))\n"
                "        " + _CUT.replace("how.", "")),
        ),
    ),
    *_in(
        DECODER, "gemma4.decoder",
        ("values of keys are normed with their weight and turned", _VALUES,
            _VALUES.replace("heads(", "k if layer.k_eq_v else heads(")),
        ("values of keys are normed with their weight", _VALUES,
            _VALUES.replace("None", 'w["k_norm.weight"] if layer.k_eq_v else None')),
    ),
    *_in(
        EXPERTS, "gemma4.decoder",
        ("the router reads what the dense MLP reads", _MIXED,
            _MIXED.replace("x, norm", 'norm(x, "pre_feedforward_layernorm"), norm')),
        ("the router reads what the experts read", _MIXED,
            _MIXED.replace("x, norm", 'norm(x, "pre_feedforward_layernorm_2"), norm')),
        ("the router's input not normed", _SCORES, _SCORES.replace("g.rms_norm(x, None, eps)", "x")),
        ("the router's input not scaled by its weight", _SCORES, _SCORES.replace(' * r["scale"]', "")),
        ("the router's input not scaled by 1/√H", _SCORES, _SCORES.replace(" * x.dims[-1] ** -0.5", "")),
        ("shares not made to add up to one", _SHARES, _SHARES.replace(" / g.ReduceSum(best, [-1])", "")),
        ("no scale of each expert", _SHARES, _SHARES.replace(_PER_EXPERT, "")),
        ("the scale of each expert before shares add up to one", _SHARES, _SCALED_FIRST),
        ("one expert fewer", "[c.chosen]", "[c.chosen - 1]"),
        ("one expert more", "[c.chosen]", "[c.chosen + 1]"),
        ("the experts with the lowest scores", "[c.chosen], outputs=2", "[c.chosen], largest=0, outputs=2"),
        ("experts read what the dense MLP reads", _MIXED, _MIXED.replace("layernorm_2", "layernorm")),
        ("experts read what the router reads", _MIXED, "mixture(g, w, c.experts, c.eps, x, x)"),
        ("experts read what the dense MLP made", _MIXED, _MIXED.replace("norm(x,", "norm(h,")),
        ("norms behind the dense MLP and the experts swapped", _ADDED,
            _ADDED.replace("_1", "_0").replace("_2", "_1").replace("_0", "_2")),
        ("no norm behind the dense MLP", _ADDED, _ADDED.replace('norm(h, "post_feedforward_layernorm_1")', "h")),
        ("no norm behind the experts", _ADDED,
            _ADDED.replace('norm(mixed, "post_feedforward_layernorm_2")', "mixed")),
        ("no dense MLP beside the experts", _ADDED, 'norm(mixed, "post_feedforward_layernorm_2")'),
        ("no experts beside the dense MLP", _ADDED, 'norm(h, "post_feedforward_layernorm_1")'),
        ("gate and up of experts swapped", "gate, up = g.Split", "up, gate = g.Split"),
        ("gate and up of experts interleaved", _HALVES, _PAIRS),
        ("experts with silu", _GATED, _GATED.replace("g.gelu(gate)", "gate * g.Sigmoid(gate)")),
        ("experts with the exact gelu", _GATED, _GATED.replace("g.gelu(gate)", "g.Gelu(gate)")),
        ("rows of another expert", _ROWS_OF, "(c.count - 1 - e) * count + np.arange(count)"),
        ("rows of all experts interleaved", _ROWS_OF, "e + np.arange(count) * c.count"),
    ),
    *_in(
        EXPERTS, "dialects.standard",
        ("the sum of experts begins with their input", "nothing = self.ConstantOfShape(self.Shape(rows))  # f32",
            'nothing = self.cast(rows, "f32")'),
        ("an expert takes the place of those before it", "made, reduction=\"add\")", "made)"),
        ("experts read the first tokens", "g.Gather(rows, asking)", "g.Gather(rows, asking * 0)"),
        ("a token's experts have the shares of the first", "* g.Gather(each, asking)",
            "* g.Gather(each, asking * 0)"),
        ("a token's experts have the same share", "g.Where(here, shares, np.float32(0))",
            "g.Where(here, np.float32(0.5), np.float32(0))"),
    ),
    *_in(
        VISION, "gemma4.vision",
        ("pixels from 0 to 1 instead of -1 to 1", "(pixels - 0.5) * 2.0", "pixels * 1.0"),
        ("x and y swapped in the table of places", "g.Transpose(places, perm=[2, 0, 1])",
            "g.Transpose(g.Gather(places, np.array([1, 0]), axis=2), perm=[2, 0, 1])"),
        ("x and y swapped in the rotation", _TURNED, _TURNED.replace("(0, 1)", "(1, 0)")),
        ("the whole head rotated at once", _TURNED, _TURNED + _WHOLE),
        ("scores scaled by 1/√D", "g.attend_within(q,", "g.attend_within(q * c.head_dim**-0.5,"),
        ("padding is attended to", "g.surroundings(real)", "g.surroundings(g.Or(real, g.Not(real)))"),
        ("not multiplied by √H before standardization", " * c.hidden**0.5", " * 1.0"),
        ("not standardized", "if c.standardize:", "if False:"),
        ("squares counted column by column", _SQUARE, f"square = row / k + {_ROWS} * (column / k)"),
        ("the projection without its norm", "g.rms_norm(soft, None, c.eps)", "soft"),
    ),
    *_in(VISION, "gemma4.clipped", *_CLIPPED),
    *_in(AUDIO, "gemma4.clipped", *_CLIPPED),
    *_in(
        AUDIO, "gemma4.audio",
        ("the scale of queries is 1/√D alone", "c.head_dim**-0.5 / math.log(2)", "c.head_dim**-0.5"),
        ("the scale per dimension without softplus", 'g.Softplus(g.cast(w["per_dim_scale"], "f32"))',
            'g.cast(w["per_dim_scale"], "f32")'),
        ("keys not scaled", "k = k * (math.log1p(math.e) / math.log(2))", "k = k * 1.0"),
        ("a window of one key more", "(ahead > -c.past)", "(ahead >= -c.past)"),
        ("distances have no bias", " + biases(g, w, c, q, blocks.distances)", ""),
        ("scores not capped", "softcap(g, scores, c.logit_cap)", "scores"),
        ("sines and cosines swapped", "[np.sin(angles), np.cos(angles)]", "[np.cos(angles), np.sin(angles)]"),
        ("the convolution is centred, not causal", "pads=[c.conv_kernel - 1, 0]", "pads=[c.conv_kernel // 2] * 2"),
        ("the halves of the gate swapped", "h, gate = g.Split", "gate, h = g.Split"),
        ("a residual weight of 1", " * c.residual_weight", " * 1.0"),
        ("channels before mels", "x = g.Reshape(x, [0, 0, c.subsampled",
            "x = g.Reshape(g.Transpose(x, perm=[0, 1, 3, 2]), [0, 0, c.subsampled"),
        ("padding is heard", "x = g.Where(g.Unsqueeze(real, [2, 3]), x, g.constant(0.0, like=x))", "x = x"),
        ("padding is attended to", "sight=g.And(", "sight=g.Or("),
    ),
    *_in(
        PATCHES, "gemma4.embedders",
        ("pixels from -1 to 1 instead of 0 to 1", _FIRST, _FIRST.replace("pixels,", "pixels * 2.0 - 1.0,")),
        ("no norm of the pixels", _FIRST, "rows(g, pixels, real)"),
        ("no norm of patches", _PLACED, _PLACED.replace('layer_norm(g, e / "patch_ln2", x)', "x")),
        ("places added before the norm of patches", _PLACED,
            _PLACED.replace("x) + placed(g, e, rows(g, places, real))", "x + placed(g, e, rows(g, places, real)))")),
        ("no norm behind the places", _PLACES_NORMED, _PLACED),
        ("norms of patches and behind the places swapped", _PLACES_NORMED,
            _PLACES_NORMED.replace("patch_ln2", "last").replace("pos_norm", "patch_ln2").replace("last", "pos_norm")),
        ("layer norms without their weight", "x, \"f32\"), weight, bias,", "x, \"f32\"), weight * 0.0 + 1.0, bias,"),
        ("layer norms without their bias", "weight, bias, axis=-1", "weight, axis=-1"),
        ("layer norms that take no mean off", "g.LayerNormalization(g.cast(x, \"f32\"), weight, bias, axis=-1, "
            "epsilon=_EPS)", "(g.rms_norm(g.cast(x, \"f32\"), weight, _EPS) + bias)"),
        ("layer norms with the epsilon of others", "_EPS = 1e-5", "_EPS = 1e-6"),
        ("the linear map without its bias", ' + e["patch_dense.bias"]', ""),
        ("no places", f" + {_PLACED.partition(' + ')[2]}", ""),
        ("x and y swapped", "np.array([[[0], [1]]])", "np.array([[[1], [0]]])"),
        ("x for both axes", "np.array([[[0], [1]]])", "np.array([[[0], [0]]])"),
        ("the table of places as that of towers", f"return g.ReduceSum({_TABLE}", _BY_AXIS),
        ("the mean of both axes", "return g.ReduceSum(g.Gather", "return g.ReduceMean(g.Gather"),
        ("the projection without its norm", _NORMED, "x"),
        ("padding not dropped", _REAL_ROWS, _PADDING_TOO),
        ("dropped only where both axes say so", "g.ReduceMin(places", "g.ReduceMax(places"),
    ),
    *_in(
        SAMPLES, "gemma4.embedders",
        ("the projection without its norm", _NORMED, "x"),
        ("the norm with the epsilon of layer norms", _NORMED, _NORMED.replace("eps)", "_EPS)")),
        ("the norm takes the mean off", _NORMED,
            _NORMED.replace('g.cast(x, "f32")', 'g.cast(x - g.ReduceMean(x, [1], keepdims=1), "f32")')),
        ("padding not dropped", _REAL_ROWS, _PADDING_TOO),
        ("clips without what says which frames are real", "rows(g, frames, mask)", "rows(g, frames, g.Not(mask))"),
    ),
)  # fmt: skip
