import json
import platform

import numpy as np
import onnx_ir as ir

import cabochon
from cabochon.checkpoint import open_checkpoint
from cabochon.checkpoint.fingerprint import fingerprint
from cabochon.package.provenance import provenance
from checkpoints import TINY
from described import facts, hub_snapshot


def record(*args, **changes):
    return json.loads(provenance(facts(*args, **changes)))


def test_the_source_is_named_by_its_hub_id_and_commit(tmp_path):
    revision = ("0123456789abcdef" * 3)[:40]
    assert record(hub_snapshot(tmp_path, "---\nlicense: gemma\n---\n"))["target"] == {
        "id": "google/gemma-4-tiny",
        "name": "gemma-4-tiny",
        "revision": revision,
        "fingerprint": fingerprint(open_checkpoint(TINY / "text")),
        "license": "gemma",
        "license_evidence": "the source's README.md: license: gemma",
        "source_url": f"https://huggingface.co/google/gemma-4-tiny/tree/{revision}",
        "remarks": [],
    }


def test_a_local_source_has_a_name_and_no_place(tmp_path):
    found = record()
    assert found["target"]["id"] is None and found["target"]["source_url"] is None
    assert found["target"]["name"] == "text" and found["target"]["license"] == "unknown"
    assert str(TINY) not in json.dumps(found)


def test_the_build_is_stated_from_facts():
    command = ("cabochon", "build", "my model", "out")
    found = record(target="cuda", precision="bf16", command=command, logits_to_keep=1)["build"]
    assert found["tool"] == "cabochon" and found["version"] == cabochon.__version__
    assert found["command"] == list(command)
    assert (found["dtype"], found["execution_provider"]) == ("bfloat16", "cuda")
    assert found["features"] == ["text-only"] and found["logits_to_keep"] == 1
    assert found["versions"]["python"] == platform.python_version()
    assert found["versions"]["numpy"] == np.__version__ and found["versions"]["onnx_ir"] == ir.__version__
    assert "group_query_attention" in found["optimize"]
    assert found["operators"]["com.microsoft.GroupQueryAttention"] == 10
    assert found["outputs_note"].startswith("hidden_states.9 = hidden states after the final norm")
    assert record()["build"]["command"] is None
    assert record(target="onnx-standard")["build"]["optimize"] == []


def test_the_embedding_scale_is_the_number_that_is_multiplied(tmp_path):
    assert record()["build"]["embed_scale"] == 8.0
    described = facts()
    described.model.metadata_props["cabochon.embed_scale"] = "39.1875"
    assert json.loads(provenance(described))["build"]["embed_scale"] == 39.1875


def test_every_tensor_is_used_or_unused_with_a_reason():
    described = facts(TINY / "target")
    found = json.loads(provenance(described))["tensors"]
    assert set(found["used"].values()) | set(found["unused"]) == set(described.checkpoint.tensors)
    assert not set(found["used"].values()) & set(found["unused"])
    assert found["used"]["model.norm.weight"] == "model.language_model.norm.weight"
    borrowed = found["unused"]["model.language_model.layers.9.self_attn.k_proj.weight"]
    assert borrowed == "layer 9 borrows the keys and values of layer 4"


def test_files_and_contracts():
    described = facts(linked=("model.onnx.data",))
    found = json.loads(provenance(described))
    assert found["files"]["model.onnx"] == {"bytes": 10, "sha256": "aa"}
    assert found["architecture_contracts"] == described.contracts
    assert found["build"]["linked_files"] == ["model.onnx.data"]
