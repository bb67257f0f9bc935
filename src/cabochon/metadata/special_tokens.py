"""Special tokens in their two shapes: roles with ids and contents (v1), and ids alone (v1.2 and later)."""

from collections.abc import Mapping, Sequence

from cabochon.errors import MetadataError
from cabochon.metadata.document import SpecialToken, SpecialTokenIds

__all__ = ["ids_of", "roles_of"]

Roles = dict[str, SpecialToken]
_KEYS = {role: f"{role}_token_id" for role in ("pad", "bos", "sep", "image", "video", "audio")} | {
    "decoder_start": "decoder_start_token_id",
    "vision_start": "vision_start_token_id",
}
_ENDS = ("eos", "end_of_turn", "eot")  # roles of tokens that end generation; eos_106 and so on do as well


def ids_of(
    tokens: Roles | SpecialTokenIds | None, ends: Sequence[int] = ()
) -> tuple[SpecialTokenIds | None, list[str]]:
    """The ids, and in words what they do not say. `ends` end generation; without them those do that are called so."""
    if tokens is None or isinstance(tokens, SpecialTokenIds):
        return tokens, []
    ending = tuple(ends) or tuple(token.id for role, token in tokens.items() if _ends(role))
    found = {_KEYS[role]: token.id for role, token in tokens.items() if role in _KEYS}
    ids = SpecialTokenIds.model_validate(found | ({"eos_token_id": ending} if ending else {}))
    homeless = [role for role, token in tokens.items() if role not in _KEYS and token.id not in ending]
    lost = ["the contents of the tokens are left out: v1.8 has ids alone"] if tokens else []
    if homeless:
        lost.append(f"{', '.join(homeless)} are left out: v1.8 has no such roles")
    return (ids if ids.model_fields_set else None), lost


def _ends(role: str) -> bool:
    return role in _ENDS or role.startswith("eos_")


def roles_of(
    tokens: Roles | SpecialTokenIds | None, contents: Mapping[int, str], at: str = ""
) -> Roles | None:
    """Roles with contents. MetadataError for a token whose content is not known."""
    if tokens is None or isinstance(tokens, dict):
        return tokens
    found = {role: getattr(tokens, key) for role, key in _KEYS.items()}
    ends = tokens.eos_token_id or ()
    found |= {"eos" if i == 0 else f"eos_{token}": token for i, token in enumerate(ends)}
    roles = {role: token for role, token in found.items() if token is not None}
    for role, token in roles.items():
        if not contents.get(token):
            raise MetadataError(
                f"the special token {token} ({role}) without a content",
                "the text of every special token, which v1 must say",
                at=at,
                remedy="put the tokenizer.json that has it beside the document",
            )
    return {role: SpecialToken(id=token, content=contents[token]) for role, token in roles.items()}
