"""The loop around the decoder as a document: prompt in, tokens out, everything in between in graphs of the package.

A turn draws from the logits that the turn before left, decides who goes on, and runs the decoder on what was drawn.
"""

from collections.abc import Mapping
from typing import Any

from cabochon.metadata.decoder import Decoder
from cabochon.metadata.derive import cells, component, contract, groups, held, invoke, model, package, rows
from cabochon.metadata.document import (
    Application,
    Bounded,
    Carry,
    Cell,
    Component,
    ComponentContract,
    ComponentPorts,
    Document,
    Emit,
    Generation,
    GenerationDefaults,
    Input,
    Invariant,
    Invoke,
    Iteration,
    LiteralSource,
    Loop,
    Manifest,
    Onnx,
    Opaque,
    Output,
    Override,
    Pipeline,
    Recurrence,
    Request,
    RuntimeRole,
    RuntimeRoleName,
    Serving,
    StateService,
    Step,
    TensorContract,
    Workflow,
)
from cabochon.metadata.ports import Ports
from cabochon.metadata.weights import quantization

__all__ = ["loop_document"]

# The contracts of the components that a runtime may recognise, and what it must be told of each.
_CONTRACTS = {
    "token_sampler": ("onnx-genai.token-sampler", {"mode": "seeded_stochastic"}),
    "termination": ("onnx-genai.termination-predicate", {}),
    "token_state_update": ("onnx-genai.state-update", {}),
}
_OF_ROWS = {"batching": "per_row", "inactive_rows": "preserve"}

# Sampling options: the runtime's role, the element type, the value that leaves the step out.
_OPTIONS: dict[str, tuple[RuntimeRoleName, str, float]] = {
    "temperature": ("sampling_temperature", "float32", 1.0),
    "top_k": ("sampling_top_k", "int64", 0),
    "top_p": ("sampling_top_p", "float32", 1.0),
    "min_p": ("sampling_min_p", "float32", 0.0),
}


def loop_document(decoder: Decoder, policies: Mapping[str, Ports]) -> Document:
    """The self-contained loop. `policies` are the ports of the graphs in policies/, by the stem of their file."""
    workflow = Workflow(
        manifest=Manifest(),
        inputs=_inputs(decoder),
        outputs={"tokens": Output(contract=rows("int64", "generated"), role="tokens", stage="pre_adapter")},
        components={"decoder": component(decoder)}
        | {name: _policy(name, ports) for name, ports in policies.items()},
        state=_state(decoder),
        steps=(_loop(decoder),),
        serving=Serving(
            active="active",
            done="done",
            accepted_len="accepted_len",
            state_service=StateService(groups=groups(decoder)),
        ),
    )
    return Document(
        model=model(decoder),
        quantization=quantization([decoder]),
        package=package(decoder),
        pipeline=Pipeline(workflow=workflow),
        generation=_generation(decoder),
    )


def _inputs(decoder: Decoder) -> dict[str, Input]:
    """What comes with a request, and the constants of the package."""
    ends = decoder.vocabulary.ends if decoder.vocabulary else ()
    limit = decoder.config.max_positions
    return {
        "request.input_ids": Input(
            contract=rows("int64", "sequence"),
            role=RuntimeRole(version="1.0", role="prompt_tokens"),
            source=Request(),
            required=True,
        ),
        "request.prompt_lengths": _optional("prompt_lengths", "int64", -1),
        "request.max_iterations": Input(
            contract=TensorContract(dtype="int64", shape=(1,)),
            role=RuntimeRole(version="1.0", role="max_output_tokens"),
            source=Request(),
            required=True,
        ),
        "request.row_max_iterations": _optional("row_max_iterations", "int64", -1),
        "request.eos_lengths": _optional("eos_lengths", "int64", len(ends)),
        **{f"request.{name}": _option(name, decoder.generation) for name in _OPTIONS},
        "request.seed": _asked("seed", rows("int64"), 0),
        "request.rng_counter": _optional("rng_counter", "int64", 0),
        "package.eos_ids": _constant("int64", (1, max(len(ends), 1)), tuple(ends) or (-1,)),
        "package.max_context": _constant("int64", (1,), limit),
        "package.last_only": _constant("int64", (), 1),
        "package.active": _constant("bool", ("batch",), True),
        "package.not_done": _constant("bool", ("batch",), False),
        "package.one": _constant("int64", ("batch",), 1),
        "package.zero": _constant("int64", ("batch",), 0),
    }


def _option(name: str, generation: Mapping[str, Any]) -> Input:
    """A sampling option with the default that generation_config.json gives it; greedy unless that samples."""
    role, dtype, off = _OPTIONS[name]
    samples = bool(generation.get("do_sample"))
    said = generation.get(name)
    default = off if said is None else said
    if name == "temperature" and not samples:
        default = 0.0
    return _asked(role, rows(dtype), type(off)(default))


def _generation(decoder: Decoder) -> Generation:
    fields = GenerationDefaults.model_fields.keys() & decoder.generation.keys()
    stated = {name: decoder.generation[name] for name in GenerationDefaults.model_fields if name in fields}
    if stated.get("early_stopping") == "never":  # which only transformers knows
        del stated["early_stopping"]
    overrides = {"max_output_tokens": "max_iterations", **{name: name for name in (*_OPTIONS, "seed")}}
    return Generation(
        defaults=GenerationDefaults(**{k: v for k, v in stated.items() if v is not None}),
        overrides={field: Override(input=f"request.{name}") for field, name in overrides.items()},
    )


def _policy(name: str, ports: Ports) -> Component:
    both = {**ports.inputs, **ports.outputs}
    said = None
    if name in _CONTRACTS:
        identity, parameters = _CONTRACTS[name]
        bindings = {port: port for port in both}
        said = ComponentContract(
            id=identity, version="2", bindings=bindings, parameters={**parameters, **_OF_ROWS}
        )
    return Component(
        implementation=Onnx(artifact=f"policies/{name}.onnx"),
        ports=ComponentPorts(
            inputs={port.name: contract(port) for port in ports.inputs.values()},
            outputs={port.name: contract(port) for port in ports.outputs.values()},
        ),
        contract=said,
        application_overridable=name == "token_sampler",
    )


def _state(decoder: Decoder) -> dict[str, Cell]:
    vocabulary = decoder.logits.shape[-1]
    return {
        "token": _cell("first.token_slot", rows("int64", 1)),
        "logits": _cell("prefill.last_logits", rows("float32", vocabulary)),
        "generated_lengths": _cell("first.generated_lengths", rows("int64")),
        "active": _cell("package.active", rows("bool")),
        "done": _cell("package.not_done", rows("bool")),
        "accepted_len": _cell("package.zero", rows("int64")),
        "cache_lengths": _cell("first.cache_lengths", rows("int64")),
        "rng_counter": _cell("request.rng_counter", rows("int64")),
        "attention_mask": _cell("first.attention_mask", rows("int64", "context"), _grows(1)),
        "position_ids": _cell("first.body_position_ids", rows("int64", 1)),
        **cells(decoder, "prefill", _grows(2)),
    }


def _grows(axis: int) -> Bounded:
    """By what each turn adds, up to all positions of the model."""
    return Bounded(axis=axis, max="package.max_context")


def _cell(initial: str, tensor: TensorContract, recurrence: Recurrence | None = None) -> Cell:
    return Cell(
        contract=tensor, scope="invocation", initializer=initial, recurrence=recurrence or Invariant()
    )


def _loop(decoder: Decoder) -> Loop:
    return Loop(
        setup=_setup(decoder),
        steps=_turn(decoder),
        continue_when="active",
        max_iterations="request.max_iterations",
        termination="generation_eos",
        iteration=Iteration(value="turn", contract=TensorContract(dtype="int64", shape=(1,))),
        carried=_carried(decoder),
    )


def _setup(decoder: Decoder) -> tuple[Step, ...]:
    """The prompt's mask, its caches and its last logits; the end tokens and limits of each row."""
    first = invoke(decoder, "request.input_ids", "first.attention_mask", past="first", out="prefill")
    return (
        _call(
            "decoder_state_initializer",
            {
                "prompt_tokens": "request.input_ids",
                "prompt_lengths": "request.prompt_lengths",
                "max_iterations": "request.max_iterations",
            },
            {name: f"first.{name}" for name in _FIRST}
            | {cache.past.name: f"first.{cache.cell}" for cache in decoder.caches},
        ),
        _keeping_last(decoder, first),
        _call("last_token_logits", {"logits": "prefill.logits"}, {"last_logits": "prefill.last_logits"}),
        _call(
            "termination_batch_initializer",
            {
                "input_eos_ids": "package.eos_ids",
                "input_eos_lengths": "request.eos_lengths",
                "input_max_iterations": "request.row_max_iterations",
                "fallback_max_iterations": "request.max_iterations",
                "active": "package.active",
            },
            {name: f"end.{name}" for name in ("row_eos_ids", "eos_lengths", "max_iterations")},
        ),
    )


_FIRST = (
    "attention_mask",
    "position_ids",
    "body_attention_mask",
    "body_position_ids",
    "token_slot",
    "generated_lengths",
    "cache_lengths",
)


def _turn(decoder: Decoder) -> tuple[Step, ...]:
    who = {"active": "active", "done": "done"}
    step = invoke(decoder, "next.token", "next.attention_mask", past="", out="step")
    return (
        _call(
            "token_sampler",
            {"logits": "logits", "counter": "rng_counter", **who}
            | {name: f"request.{name}" for name in (*_OPTIONS, "seed")},
            {"token": "drawn.token", "next_counter": "next.rng_counter"},
        ),
        _call("token_to_slot", {"token": "drawn.token"}, {"slot": "drawn.slot"}),
        _call(
            "token_state_update", {"current": "token", "update": "drawn.slot", **who}, {"next": "next.token"}
        ),
        _count("generated_length_update", "generated_lengths", "next.generated_lengths"),
        _count("generated_length_update", "package.zero", "drawn.length"),
        _count("cache_length_update", "cache_lengths", "next.cache_lengths"),
        _count("cache_length_update", "package.zero", "next.accepted_len"),
        _call(
            "termination",
            {
                "tokens": "drawn.token",
                "eos_ids": "end.row_eos_ids",
                "eos_lengths": "end.eos_lengths",
                "iteration": "turn",
                "max_iterations": "end.max_iterations",
                "active": "active",
            },
            {"done": "next.done", "next_active": "next.active", "continue": "next.continue"},
        ),
        Emit(value="next.token", output="tokens", mode="append", valid_length="drawn.length", when="active"),
        _call(
            "decoder_step_update",
            {
                "attention_mask": "attention_mask",
                "logical_length": "cache_lengths",
                "position_ids": "position_ids",
            },
            {"next_attention_mask": "next.attention_mask", "next_position_ids": "next.position_ids"},
        ),
        _keeping_last(decoder, step),
        _call("last_token_logits", {"logits": "step.logits"}, {"last_logits": "next.logits"}),
    )


def _carried(decoder: Decoder) -> tuple[Carry, ...]:
    own = (name for name in _state(decoder) if not name.startswith("kv."))
    return (
        *(Carry(cell=name, next=f"next.{name}") for name in own),
        *(Carry(cell=cache.cell, next=f"step.{cache.cell}") for cache in decoder.caches),
    )


def _call(component: str, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> Invoke:
    return Invoke(component=component, inputs=dict(inputs), outputs=dict(outputs))


def _count(component: str, left: str, total: str) -> Invoke:
    """One more for each row that goes on."""
    who = {"active": "active", "done": "done"}
    return _call(component, {"left": left, "right": "package.one", **who}, {"total": total})


def _keeping_last(decoder: Decoder, step: Invoke) -> Invoke:
    """Ask for the logits of every row's last real token alone, where the graph can be asked."""
    if "logits_to_keep" not in decoder.ports.inputs:
        return step
    return step.model_copy(update={"inputs": {**step.inputs, "logits_to_keep": "package.last_only"}})


def _optional(name: str, dtype: str, default: int) -> Input:
    """One number for each row that the application may give."""
    return Input(
        contract=rows(dtype), role=Opaque(), source=Application(name=name), required=False, default=default
    )


def _asked(role: RuntimeRoleName, tensor: TensorContract, default: float) -> Input:
    return Input(
        contract=tensor,
        role=RuntimeRole(version="1.0", role=role),
        source=Request(),
        required=False,
        default=default,
    )


def _constant(dtype: str, shape: tuple[int | str, ...], value: Any) -> Input:
    return Input(
        contract=held(dtype, shape), role=Opaque(), source=LiteralSource(), required=False, default=value
    )
