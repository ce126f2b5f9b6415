"""Selection of 8 of 256 experts within 4 of 8 groups, in float32, by operations of torch."""

import torch

TOP = 8
_GROUPS = 8
_GROUPS_KEPT = 4


def route(logits, bias, factor):
    """Ids of the selected experts and their weights, both (T, 8)."""
    score = logits.sigmoid()
    biased = (score + bias).unflatten(1, (_GROUPS, -1))
    pair = biased.topk(2, dim=2, sorted=False).values.sum(2)
    kept = torch.full_like(pair, -torch.inf)
    kept.scatter_(1, pair.topk(_GROUPS_KEPT, dim=1, sorted=False).indices, 0.0)
    allowed = (biased + kept[..., None]).flatten(1)
    expert = allowed.topk(TOP, dim=1, sorted=False).indices
    chosen = score.gather(1, expert)
    return expert, chosen * (factor / (chosen.sum(1, keepdim=True) + 1e-20))
