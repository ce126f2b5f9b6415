"""Selection of 8 of 256 experts within 4 of 8 groups, in float32.

Suffixes: T tokens, G groups, M experts of a group, K selected experts.
"""

from typing import NamedTuple

import torch

_GROUPS = 8
_GROUPS_KEPT = 4
_TOP = 8


class Routing(NamedTuple):
    """Selected experts and how their results are combined."""

    expert_TK: torch.Tensor
    weight_TK: torch.Tensor


def route(logits, bias, scaling_factor):
    """Select experts by biased scores and weight them by unbiased ones."""
    score = torch.sigmoid(logits)
    biased_TGM = (score + bias.float()).view(logits.shape[0], _GROUPS, -1)
    pair_TG = biased_TGM.topk(2, dim=2, sorted=False).values.sum(2)
    group_TG = pair_TG.topk(_GROUPS_KEPT, dim=1, sorted=False).indices
    members = biased_TGM.shape[2]
    kept = biased_TGM.gather(1, group_TG[..., None].expand(-1, -1, members)).flatten(1)
    place_TK = kept.topk(_TOP, dim=1, sorted=False).indices
    expert_TK = group_TG.gather(1, place_TK // members) * members + place_TK % members
    chosen_TK = score.gather(1, expert_TK)
    return Routing(expert_TK, chosen_TK * (scaling_factor / chosen_TK.sum(1, keepdim=True)))
