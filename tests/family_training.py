"""Trains a tiny drafter on what its target says to the recorded prompts, so that drafts are accepted now and then."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

BATCH, AHEAD, RATE = 4, 3, 3e-3


def trained(
    drafter: Any,
    target: Any,
    given: Mapping[str, Any],
    said: Mapping[str, list[int]],
    steps: int,
    seed: int = 0,
) -> Any:
    """The drafter after some steps of Adam, its weights bf16 values."""
    import torch

    torch.manual_seed(seed)
    places = [place for case, fed in given.items() for place in _places(target, fed, said[case])]
    optimizer = torch.optim.Adam(drafter.parameters(), lr=RATE)
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        optimizer.zero_grad()
        losses = [_loss(drafter, target, *places[i]) for i in rng.integers(0, len(places), BATCH)]
        torch.stack(losses).sum().backward()
        torch.nn.utils.clip_grad_norm_(drafter.parameters(), 1.0)
        optimizer.step()
    with torch.no_grad():
        for weight in drafter.parameters():
            weight.copy_(weight.bfloat16().to(weight.dtype))
    return drafter.eval()


def _places(
    target: Any, fed: Mapping[str, Any], said: list[int]
) -> Iterator[tuple[Any, Any, dict[str, Any], int]]:
    """Every place where a round may begin: the tokens from it on, the state before, the target's keys and values."""
    import torch

    given = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in fed.items()}
    length, new = given["input_ids"].shape[1], torch.tensor([said])
    given["input_ids"] = torch.cat([given["input_ids"], new], 1)
    given["attention_mask"] = torch.ones_like(given["input_ids"])
    given["mm_token_type_ids"] = torch.cat([given["mm_token_type_ids"], torch.zeros_like(new)], 1)
    with torch.no_grad():
        found = target(**given, output_hidden_states=True, return_shared_kv_states=True, use_cache=False)
    for place in range(length, length + len(said) - AHEAD):
        shared = {
            kind: tuple(x[:, :, :place].clone() for x in pair)
            for kind, pair in found.shared_kv_states.items()
        }
        tokens = given["input_ids"][0, place : place + AHEAD + 1]
        yield tokens, found.hidden_states[-1][:, place - 1 : place].clone(), shared, place


def _loss(drafter: Any, target: Any, tokens: Any, state: Any, shared: dict[str, Any], place: int) -> Any:
    """Cross entropy of the tokens ahead, and of their centroids where the head is ordered."""
    import torch

    table, loss = target.get_input_embeddings(), torch.zeros(())
    for now, following in pairwise(tokens):
        joined = torch.cat([table(now.view(1, 1)).detach(), state], -1)
        x = drafter.pre_projection(joined)
        hidden = drafter.model(
            inputs_embeds=x,
            attention_mask=drafter.create_attention_masks(x, None, shared),
            position_ids=torch.tensor([[place]]),
            shared_kv_states=shared,
            use_cache=False,
        ).last_hidden_state
        state, right = drafter.post_projection(hidden), following.view(1)
        loss = loss + torch.nn.functional.cross_entropy(drafter.lm_head(hidden[:, 0]), right)
        if (head := drafter.masked_embedding) is not None:
            cluster = head.token_ordering.argsort()[right] // head.vocab_size_per_centroid
            loss = loss + torch.nn.functional.cross_entropy(head.centroids(hidden[:, 0]), cluster)
    return loss
