"""What packages of every member say: experts where there are any, pairs that borrow what their targets remember."""

import json
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx_ir as ir
import pytest
from ruamel.yaml import YAML

import cabochon
from cabochon.errors import PackageError
from cabochon.gemma4 import DrafterConfig, TextConfig, read_drafter_config, read_full_config, read_text_config
from cabochon.gemma4.config import FULL, SLIDING
from cabochon.metadata import forms
from cabochon.metadata.document import Chained, Document, Workflow
from cabochon.metadata.experts import mixture_of_experts
from cabochon.metadata.ports import read
from cabochon.package.fitting import require_fit
from cabochon.validation.assembled import COMPONENTS
from cabochon.validation.converted import Converted
from family import MEMBERS, OTHERS, Member
from packages import TINY, Packages

KNOWN = Path(cabochon.__file__).parent / "parity" / "known_answers.json"
EXPERTS = {
    "representation": "dense_fallback", "routed_expert_count": 8, "shared_expert_count": 1, "experts_per_token": 2,
    "expert_intermediate_size": 32, "shared_expert_intermediate_size": 48, "activation": "gelu_pytorch_tanh",
    "router": {
        "score_function": "softmax", "selection_method": "top_k", "normalize_weights": True, "scaling_factor": 1.0,
    },
}  # fmt: skip


def raw(folder: str) -> dict[str, Any]:
    return json.loads((TINY / folder / "config.json").read_bytes())


def target(member: Member) -> TextConfig:
    return read_text_config(raw(member.folder))


def drafter(member: Member) -> DrafterConfig:
    return read_drafter_config(raw(member.assistant))


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.folder)
def test_experts_are_said_where_there_are_any(member: Member) -> None:
    found = mixture_of_experts(target(member))
    assert (found and found.model_dump(exclude_none=True)) == (EXPERTS if member.name == "26B-A4B" else None)
    assert mixture_of_experts(drafter(member).text) is None


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.folder)
def test_a_drafter_fits_its_target(member: Member) -> None:
    own = target(member)
    require_fit(own, drafter(member))
    assert [own.layers[i].k_eq_v for i in (own.owners[-1],)] == [member.name not in ("E2B", "E4B")]


@pytest.mark.parametrize(("one", "other"), list(permutations(MEMBERS, 2)), ids=lambda member: member.folder)
def test_a_drafter_fits_no_other_target(one: Member, other: Member) -> None:
    with pytest.raises(
        PackageError, match=r"the assistant does not fit the target: (its|it drafts for)"
    ) as raised:
        require_fit(target(one), drafter(other))
    assert raised.value.remedy == "give the assistant that was made for this target"  # of no published size


@pytest.mark.parametrize("model", json.loads(KNOWN.read_bytes())["models"], ids=lambda model: model["id"])
def test_the_assistant_of_a_published_target_is_named(model: dict[str, Any]) -> None:
    own, sizes = target(MEMBERS[0]), model["geometry"]
    layers = own.layers * sizes["num_hidden_layers"]
    published = replace(own, hidden=sizes["hidden_size"], layers=layers[: sizes["num_hidden_layers"]])
    with pytest.raises(PackageError, match="its backbone_hidden_size is 64") as raised:
        require_fit(published, drafter(MEMBERS[0]))
    name = f"{model['id'].removesuffix('-it')}-it"
    assert f": {name}-assistant, if it is {name} " in (raised.value.remedy or "")


def test_a_family_is_told_from_another_before_anything_is_written(tmp_path: Path) -> None:
    """The same sizes: only what both are called tells them apart."""
    unified, moe = (next(m for m in MEMBERS if m.folder == folder) for folder in ("unified", "moe"))
    with pytest.raises(
        PackageError, match="it drafts for a gemma4_unified model, the target is a gemma4 model"
    ):
        cabochon.build(TINY / moe.folder, tmp_path / "p", assistant=TINY / unified.assistant)
    with pytest.raises(
        PackageError, match="it drafts for a gemma4 model, the target is a gemma4_unified model"
    ):
        require_fit(target(unified), drafter(moe))
    assert list(tmp_path.iterdir()) == []


def workflow(document: Document) -> Workflow:
    assert document.pipeline is not None
    return document.pipeline.workflow


@pytest.mark.parametrize("member", OTHERS, ids=lambda member: member.folder)
def test_a_pair_says_what_its_graphs_are(member: Member, packages: Packages) -> None:
    pair = packages(f"{member.folder}-pair")
    for folder in (pair, pair / "target"):  # what every rule said that reads no weights
        verdict = json.loads((folder / "evidence" / "validation.json").read_bytes())
        assert verdict["passed"] and verdict["findings"] == []
    document = forms.read((pair / "inference_metadata.yaml").read_bytes(), "inference_metadata.yaml")
    own, drafts = target(member), drafter(member)
    _experts(member, document, pair)
    _speculation(own, document)
    _shared(own, drafts, document, pair)


def _experts(member: Member, document: Document, pair: Path) -> None:
    """In the document of the pair and in that of its target."""
    alone = forms.read((pair / "target" / "inference_metadata.yaml").read_bytes(), "target")
    for each in (document, alone):
        assert each.model and (each.model.mixture_of_experts is not None) == (member.name == "26B-A4B")


def _speculation(own: TextConfig, document: Document) -> None:
    said = document.speculative
    assert said and isinstance(said.proposal_execution, Chained) and said.vocabulary.kind == "identical"
    seed, table = said.proposal_execution.folded_carry_seed, said.proposal_execution.token_embedding
    assert seed and seed.output == f"hidden_states.{len(own.layers) - 1}" and table
    assert (table.component, table.table) == ("target", "model.embed_tokens.weight")
    assert sorted(said.shared_state) == sorted([FULL, SLIDING])
    assert len(said.rollback_state) == 2 * len(own.owners)


def _shared(own: TextConfig, drafts: DrafterConfig, document: Document, pair: Path) -> None:
    """The drafter's ports have the heads and sizes of the last owner of each kind, whose cells they read."""
    ports = read(ir.load(pair / "model.onnx")).inputs
    assert ports["inputs_embeds"].shape[-1] == 2 * own.hidden == 2 * drafts.backbone
    contract = YAML(typ="safe").load(pair / "component_contract.yaml")["components"]
    groups = workflow(document).serving.state_service.groups  # type: ignore[union-attr]
    for kind in (FULL, SLIDING):
        anchor = max(i for i in own.owners if own.layers[i].kind == kind)
        layer, borrowed = own.layers[anchor], groups[kind].ports["assistant"]
        assert contract["assistant"]["borrows"][kind]["layer"] == anchor
        for half in ("key", "value"):
            port = ports[f"shared_kv.{kind}.{half}"]
            assert (port.shape[1], port.shape[3]) == (layer.kv_heads, layer.head_dim)
            alias = borrowed[f"kv.{anchor}.{half}"]
            assert (alias.input, alias.access, alias.output) == (port.name, "read_only", None)


@pytest.mark.parametrize("component", COMPONENTS)
def test_what_is_asked_of_converted_graphs_are_the_ports_of_the_graphs(
    component: str, packages: Packages
) -> None:
    """Of the unified model: patches and frames have the sizes of its config.json."""
    graph = ir.load(packages("unified-full") / component / "model.onnx")
    net: Any = SimpleNamespace(properties=graph.metadata_props)
    asked = Converted(component, net, None, read_full_config(raw("unified"))).expected
    assert asked is not None
    found = read(graph)
    for real, wanted in ((found.inputs, asked.inputs), (found.outputs, asked.outputs)):
        assert {name: (port.dtype, port.shape) for name, port in real.items()} == {
            name: (port.dtype, port.shape) for name, port in wanted.items()
        }
