import pytest

import checkpoints
from cabochon.checkpoint.shards import INDEX, read_shards
from cabochon.errors import SourceError, TensorError


@pytest.fixture
def folder(tmp_path):
    return checkpoints.copy(tmp_path / "checkpoint")


def test_shards_hold_what_the_single_file_held(folder):
    before = {name: bytes(t.raw()) for name, t in read_shards(folder)[0].items()}
    names = checkpoints.shard(folder)
    tensors, remarks = read_shards(folder)
    assert {name: bytes(t.raw()) for name, t in tensors.items()} == before
    assert {t.file.name for t in tensors.values()} == set(names)
    assert remarks == []


def lacking(folder, names):
    file = folder / names[0]
    tensors = checkpoints.read(file)
    name = next(iter(tensors))
    del tensors[name]
    checkpoints.write(file, tensors)
    return f"{names[0]}: the index promises {name} here; the shard lacks it"


def unlisted(folder, names):
    index = checkpoints.read_index(folder)
    name = next(name for name, file in index.items() if file == names[1])
    del index[name]
    checkpoints.write_index(folder, index)
    return f"{names[1]}: {name} stored here, but not in {INDEX}"


def twice(folder, names):
    tensors = checkpoints.read(folder / names[0])
    name = next(iter(tensors))
    checkpoints.write(folder / names[2], checkpoints.read(folder / names[2]) | {name: tensors[name]})
    return f"{names[2]}: {name} stored here, but the index says {names[0]}: stored twice"


def missing(folder, names):
    (folder / names[1]).unlink()
    return f"{INDEX}: 1 of 3 shards are missing: {names[1]}"


def truncated(folder, names):
    file = folder / names[2]
    file.write_bytes(file.read_bytes()[:-7])
    return f"{names[2]}: truncated: the file has"


def pointer(folder, names):
    (folder / names[0]).write_bytes(checkpoints.POINTER)
    return f"{names[0]}: this is a Git LFS pointer"


STALE = ("model-00004-of-00004.safetensors", "old.safetensors")


def stale(folder, names):
    checkpoints.write(folder / STALE[0], {"model.norm.weight": ("U8", [1], b"x")})
    return f"{INDEX}: does not name {STALE[0]}, which lies beside its shards"


def stale_and_broken(folder, names):
    for name in STALE:
        (folder / name).write_bytes(b"")
    return f"{INDEX}: does not name {', '.join(STALE)}, which lies"


def no_index(folder, names):
    (folder / INDEX).unlink()
    return f"neither model.safetensors nor {INDEX}; found {', '.join(names)}"


def dangling(folder, names):
    (folder / names[0]).unlink()
    (folder / names[0]).symlink_to("../../blobs/0")
    return f"{names[0]}: a link that leads to no file"


def index_is_text(folder, names):
    (folder / INDEX).write_text("weights")
    return f"{INDEX}: not JSON"


def index_is_pointer(folder, names):
    (folder / INDEX).write_bytes(checkpoints.POINTER)
    return f"{INDEX}: this is a Git LFS pointer"


def index_names_a_tensor_twice(folder, names):
    (folder / INDEX).write_text('{"weight_map": {"a": "b", "a": "b"}}')
    return f"{INDEX}: the key 'a' is given twice"


def index_is_empty(folder, names):
    checkpoints.write_index(folder, {})
    return f"{INDEX}: has no weight_map"


@pytest.mark.parametrize(
    "break_it",
    [
        lacking,
        unlisted,
        twice,
        missing,
        truncated,
        pointer,
        stale,
        stale_and_broken,
        no_index,
        dangling,
        index_is_text,
        index_is_pointer,
        index_names_a_tensor_twice,
        index_is_empty,
    ],
)
def test_each_broken_set_of_shards_has_its_own_error(folder, break_it):
    message = break_it(folder, checkpoints.shard(folder))
    with pytest.raises(SourceError) as caught:
        read_shards(folder)
    assert message in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize(
    "shard",
    [
        "../out.safetensors",
        "/etc/x.safetensors",
        "a/../../x.safetensors",
        "..\\x.safetensors",
        "C:x.safetensors",
        5,
        "model.bin",
    ],
)
def test_an_index_may_name_safetensors_inside_the_folder_only(folder, shard):
    checkpoints.shard(folder)
    checkpoints.write_index(folder, checkpoints.read_index(folder) | {"model.norm.weight": shard})
    with pytest.raises(SourceError, match=r"puts model\.norm\.weight into"):
        read_shards(folder)


def test_a_stale_shard_may_be_deleted_or_added_to_the_index(folder):
    checkpoints.shard(folder)
    extra = folder / STALE[0]
    checkpoints.write(extra, {"x": ("U8", [1], b"x")})
    with pytest.raises(SourceError) as caught:
        read_shards(folder)
    assert caught.value.remedy.startswith("delete it, or add it to the index")
    index = checkpoints.read_index(folder)
    checkpoints.write_index(folder, index | {"x": extra.name})
    assert read_shards(folder)[0]["x"].file.name == extra.name
    checkpoints.write_index(folder, index)
    extra.unlink()
    assert set(read_shards(folder)[0]) == set(index)


def test_an_adapter_beside_shards_is_no_stale_shard(folder):
    checkpoints.shard(folder)
    checkpoints.write(folder / "adapter_model.safetensors", {"lora_A": ("U8", [1], b"x")})
    assert "NOT applied" in read_shards(folder)[1][0]


def test_a_single_file_goes_before_an_index(folder):
    whole = (folder / "model.safetensors").read_bytes()
    names = checkpoints.shard(folder)
    (folder / "model.safetensors").write_bytes(whole)
    tensors, remarks = read_shards(folder)
    assert {t.file.name for t in tensors.values()} == {"model.safetensors"}
    assert remarks == [f"{', '.join(names)}: not used beside model.safetensors"]


def test_an_adapter_beside_the_checkpoint_is_said(folder):
    checkpoints.write(folder / "adapter_model.safetensors", {"lora_A": ("U8", [1], b"x")})
    (folder / "adapter_config.json").write_text("{}")
    tensors, remarks = read_shards(folder)
    assert "lora_A" not in tensors
    assert len(remarks) == 1
    assert "adapter_config.json, adapter_model.safetensors" in remarks[0] and "NOT applied" in remarks[0]


def test_a_missing_shard_is_not_a_tensor_error(folder):
    names = checkpoints.shard(folder)
    (folder / names[0]).unlink()
    with pytest.raises(SourceError) as caught:
        read_shards(folder)
    assert not isinstance(caught.value, TensorError)


def test_a_package_is_no_checkpoint(tmp_path):
    for name in ("config.json", "provenance.json", "SHA256SUMS", "model.onnx"):
        (tmp_path / name).write_bytes(b"{}")
    with pytest.raises(SourceError, match="is a package that was built; expected a checkpoint") as caught:
        read_shards(tmp_path)
    assert caught.value.at == str(tmp_path)
    assert "--assistant" in caught.value.remedy and "`cabochon convert`" in caught.value.remedy
