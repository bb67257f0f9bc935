"""Fetching a checkpoint from a hub, through huggingface_hub and its cache.

Files that are complete in the cache are never fetched twice, and a connection that breaks is resumed in the
middle of a file. HF_ENDPOINT, HF_HOME, HF_TOKEN and HF_HUB_OFFLINE mean what they mean to huggingface_hub.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from cabochon.checkpoint.refusals import refuse_kinds
from cabochon.errors import SourceError

__all__ = ["fetch"]

_SMALL = ["*.json", "*.jinja", "*.model", "README*", "LICENSE*", "NOTICE*"]
_WEIGHTS = ["*.safetensors"]
_NOT_OURS = ["*/*", "adapter_model*"]


def fetch(repository: str, revision: str | None, examine: Callable[[Path], object]) -> Path:
    """The folder of the snapshot in the cache. `examine` sees it first without weights, and may refuse it.

    Raises SourceError for whatever goes wrong on the way.
    """
    folder = _snapshot(repository, revision, _SMALL)
    if (folder / "config.json").exists():
        examine(folder)
    folder = _snapshot(repository, folder.name, _WEIGHTS)
    if not folder.is_dir() or not any(folder.glob("*.safetensors")):
        refuse_kinds(_names(repository, folder.name), repository)
        raise SourceError(
            "the repository holds no safetensors", at=repository, remedy="check the id and the revision"
        )
    return folder


def _snapshot(repository: str, revision: str | None, wanted: list[str]) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(
            snapshot_download(repository, revision=revision, allow_patterns=wanted, ignore_patterns=_NOT_OURS)
        )
    except Exception as error:  # the transport's own exceptions differ between versions of huggingface_hub
        raise _explained(error, repository, revision) from error


def _names(repository: str, revision: str) -> list[str]:
    from huggingface_hub import HfApi

    try:
        return HfApi().list_repo_files(repository, revision=revision)
    except Exception as error:  # as above
        raise _explained(error, repository, revision) from error


_AGAIN = "run again: finished files are kept"


def _explained(error: Exception, repository: str, revision: str | None) -> SourceError:
    """What a failure means to the user, and what to do."""
    from huggingface_hub import constants

    at = f"{repository}@{revision}" if revision else repository
    for kind, message, remedy in _known_failures(error, f"{constants.ENDPOINT}/{repository}"):
        if isinstance(error, kind):
            return SourceError(message, at=at, remedy=remedy)
    what = f"the download failed: {type(error).__name__}: {_first_line(error)}"
    return SourceError(
        what, at=at, remedy=f"check the connection, the disk and the permissions, then {_AGAIN}"
    )


def _known_failures(error: Exception, page: str) -> Iterator[tuple[type[Exception], str, str]]:
    """(kind of error, what it means, what to do), the special ones first."""
    from huggingface_hub import constants, errors

    login = "`hf auth login` or set HF_TOKEN"
    yield errors.GatedRepoError, "gated: access must be granted", f"accept the terms at {page}, then {login}"
    yield (
        errors.RepositoryNotFoundError,
        "no such repository on the hub (or a private one), and no such folder here",
        f"check the spelling; for a private repository {login}",
    )
    yield errors.RevisionNotFoundError, "no such revision", f"choose one of {page}/commits/main"
    yield errors.HFValidationError, f"not a hub id: {error}", "a hub id has the form org/name"
    if constants.HF_HUB_OFFLINE:
        yield (
            errors.LocalEntryNotFoundError,
            "not complete in the cache, and HF_HUB_OFFLINE forbids fetching it",
            "unset HF_HUB_OFFLINE, or give a local folder",
        )
    yield (
        errors.LocalEntryNotFoundError,
        f"not complete in the cache, and {constants.ENDPOINT} did not answer: {_first_line(error)}",
        f"check the connection, then {_AGAIN}",
    )


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].removeprefix("Got: ")[:300] if lines else type(error).__name__
