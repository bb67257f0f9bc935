"""The mistakes: known pitfalls of the family, written as changes of the lines that do it right."""

from dataclasses import dataclass

__all__ = ["MUTATIONS", "Mutation"]

VISION, AUDIO, EMBEDDING, DECODER = "vision_encoder", "audio_encoder", "embedding", "decoder"
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
)  # fmt: skip
