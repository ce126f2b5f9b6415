"""Is a selection right: by its scores in the contest tier, by its members in the strict one.

Both tiers want ids that the row's block table reaches below its length, none twice. Order
is free, and so are the places of the padding.

*contest*: the scores of the reference's and the candidate's tokens are sorted and compared
rank by rank under ``atol`` and ``rtol``, padding counting as minus infinity (FlashInfer-Bench's
DsaTopkIndexerEvaluator, main of 2026-04-30). A wrong member costs as much as its score is too low.

*strict*: exactly min(length, 2048) tokens, -1 in all other places, and the members are those
of the reference, except where a score is as close to the cut as float32 accumulation in any
sensible order can blur it. True ties at the cut may be broken in any way.
"""

from typing import NamedTuple

import torch
from kopt_harness.check import OutputFinding, tier_result
from kopt_harness.schema import FirstWrong, OutputError, Reason

_NAME = "topk_indices"
_PAGE = 64
_DIM = 128
_ROWS_AT_ONCE = 8

_BLUR = 2.0**-21
"""Of sum |w| * |q| * |k|: eight float32 roundings of a score without cancellation. Float32
implementations stay within a tenth of it; scores rounded to bf16 or fp16 exceed it."""

_EPS = 1e-8
"""Added to the reference's score in the relative error; part of the contest's rule."""


class _Scores(NamedTuple):
    """Of given tokens, (R, N), minus infinity and 0 where there is none."""

    value: torch.Tensor
    """Float64."""
    blur: torch.Tensor
    """How far an honest float32 score may be off."""


def compare(tier, definition, inputs, expected, actual):
    """One tier of correctness of a selection.

    Args:
        tier: ``contest`` or ``strict``.
        definition: the operator.
        inputs: all inputs by name.
        expected: the reference's outputs by name.
        actual: the candidate's outputs by name, in the declared form.

    Returns:
        The tier's result.
    """
    selected, reference = actual[_NAME], expected[_NAME]
    finding = _invalid_member(selected, inputs)
    if finding is None and tier == "strict":
        finding = _wrong_count(selected, inputs)
    if finding is None:
        same = selected.sort(dim=1).values == reference.sort(dim=1).values
        rows = (~same.all(dim=1)).nonzero()[:, 0]
        if not rows.numel():  # equal sets have equal scores
            finding = OutputFinding(_error(same.new_zeros(1), same.new_zeros(1), 1.0))
        elif tier == "contest":
            finding = _by_scores(definition.kopt.contest, rows, selected, reference, inputs)
        else:
            finding = _by_members(rows, selected, reference, inputs)
    return tier_result(tier, [finding])


def same_answer(inputs, right, outputs):
    """Whether two selections are the same answer: the same tokens, or others of equal scores.

    Args:
        inputs: all inputs by name.
        right: a right selection by name.
        outputs: another one by name.
    """
    selected, reference = outputs[_NAME], right[_NAME]
    same = (selected.sort(dim=1).values == reference.sort(dim=1).values).all(dim=1)
    if bool(same.all()):
        return True
    if _invalid_member(selected, inputs) or _wrong_count(selected, inputs):
        return False
    rows = (~same).nonzero()[:, 0]
    mine, target = _scores(selected, rows, inputs), _scores(reference, rows, inputs)
    apart = mine.value.sort(dim=1).values - target.value.sort(dim=1).values
    apart = apart.nan_to_num(0.0).abs()  # padding on both sides
    # Scores of true ties differ by the rounding of float64 sums alone.
    return bool((apart <= 2.0**-20 * target.blur.amax(dim=1, keepdim=True)).all())


def null_kernels(inputs, right, rng):
    """Selections that need no scores, or are right but for one token.

    Args:
        inputs: all inputs by name.
        right: a right selection by name.
        rng: source of randomness on the host.

    Yields:
        The name of a null kernel and its outputs.
    """
    selected, lengths = right[_NAME], inputs["seq_lens"][:, None]
    place = torch.arange(selected.shape[1], device=selected.device)
    yield "nothing-selected", {_NAME: torch.full_like(selected, -1)}
    yield "first-ids", {_NAME: place.to(selected.dtype).expand_as(selected).contiguous()}
    table = inputs["block_table"]
    for name, at in (
        ("first-tokens", place.expand_as(selected)),
        ("last-tokens", (lengths - 1 - place).clamp(min=0)),
    ):
        tokens = table.gather(1, (at // _PAGE).clamp(max=table.shape[1] - 1)) * _PAGE + at % _PAGE
        tokens = tokens.masked_fill(place >= lengths, -1)
        yield name, {_NAME: tokens.to(selected.dtype)}
    yield "one-token-twice", {_NAME: _one_replaced(selected, rng, selected.roll(1, dims=1))}
    yield "one-token-missing", {_NAME: _one_replaced(selected, rng, torch.full_like(selected, -1))}
    stray = _unreachable(inputs).to(selected.dtype).expand_as(selected)
    yield "one-token-of-no-page", {_NAME: _one_replaced(selected, rng, stray)}
    yield "one-token-below-the-cut", {_NAME: _one_below(selected, rng, inputs)}


def _unreachable(inputs):
    """(B, 1) a token of a page that is not in the block table of the row."""
    table = inputs["block_table"].long()
    pages = inputs["k_index_cache_fp8"].shape[0]
    is_free = torch.ones(table.shape[0], pages, dtype=torch.bool, device=table.device)
    is_free.scatter_(1, table, False)
    return is_free.int().argmax(dim=1, keepdim=True) * _PAGE


def _one_replaced(selected, rng, by):
    """In the first row that has any, one token gives way to what ``by`` has in its place."""
    wrong = selected.clone()
    usable = (selected >= 0) & (selected != by)
    for row in usable.any(dim=1).nonzero()[:, 0].tolist():
        places = usable[row].nonzero()[:, 0]
        pick = int(torch.randint(places.numel(), (1,), generator=rng))
        wrong[row, places[pick]] = by[row, places[pick]]
        break
    return wrong


def _one_below(selected, rng, inputs):
    """In one long row, a selected token gives way to one whose score is clearly lower."""
    wrong = selected.clone()
    table, size = inputs["block_table"].long(), selected.shape[1]
    for row in (inputs["seq_lens"] > size).nonzero()[:, 0].tolist():
        position = torch.arange(int(inputs["seq_lens"][row]), device=table.device)
        tokens = table[row, position // _PAGE] * _PAGE + position % _PAGE
        rest = tokens[~torch.isin(tokens, selected[row].long())]
        only = torch.full((1,), row, device=table.device)
        spread = torch.zeros_like(table[:, :1]).expand(-1, rest.numel()).clone()
        spread[row] = rest
        below = _scores(spread, only, inputs)
        mine = _scores(selected, only, inputs)
        cut, place = mine.value.min(1, keepdim=True)
        clear = cut - below.value > 2.0 * (below.blur + mine.blur.gather(1, place))
        candidates = rest[clear[0]]
        if candidates.numel():
            # The one nearest to the cut is the hardest to find.
            best = below.value[0][clear[0]].argmax()
            pick = int(torch.randint(size, (1,), generator=rng))
            wrong[row, pick] = candidates[best].to(wrong.dtype)
            break
    return wrong


def _keys(raw):
    """Float64 keys of gathered tokens: their 128 value bytes and 4 scale bytes, (..., 132)."""
    values = raw[..., :_DIM].contiguous().view(torch.float8_e4m3fn).double()
    scales = raw[..., _DIM:].contiguous().view(torch.float32).double()
    return values * scales


def _gather(cache, tokens):
    """(..., 132) uint8: values and scale of each token out of the packed pages."""
    pages = cache.reshape(cache.shape[0], -1).view(torch.uint8)
    page, offset = tokens // _PAGE, tokens % _PAGE
    values = pages[:, : _PAGE * _DIM].unflatten(1, (_PAGE, _DIM))[page, offset]
    scales = pages[:, _PAGE * _DIM :].unflatten(1, (_PAGE, 4))[page, offset]
    return torch.cat((values, scales), dim=-1)


def _scores(tokens, rows, inputs):
    """Of the tokens (B, N) of all rows, those of ``rows`` (R,)."""
    parts = []
    for part in rows.split(_ROWS_AT_ONCE):
        chosen = tokens[part].long()
        keys = _keys(_gather(inputs["k_index_cache_fp8"], chosen.clamp(min=0)))
        query = inputs["q_index_fp8"][part].double()
        weights = inputs["weights"][part].double()
        heads = torch.relu(query @ keys.transpose(1, 2))
        value = (weights[:, None] @ heads)[:, 0]
        size = (weights.abs() * query.norm(dim=2)).sum(dim=1, keepdim=True)
        absent = chosen < 0
        parts.append(
            _Scores(
                value.masked_fill(absent, -torch.inf),
                (_BLUR * size * keys.norm(dim=2)).masked_fill(absent, 0.0),
            )
        )
    return _Scores(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _invalid_member(selected, inputs):
    """A finding on the first unreachable or repeated token, or None."""
    tokens = selected.long()
    position = _slots(inputs, tokens // _PAGE) * _PAGE + tokens % _PAGE
    lost = (tokens >= 0) & ~(position < inputs["seq_lens"][:, None])
    if lost.any():
        return _refused("unreachable-token", lost, selected, "a token of this row")
    ordered, place = tokens.sort(dim=1, stable=True)
    again = torch.zeros_like(lost)
    again.scatter_(1, place[:, 1:], (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0))
    if again.any():
        return _refused("repeated-token", again, selected, "a token not selected before")
    return None


def _slots(inputs, pages):
    """Where the block table of a row first has each of ``pages``; its width if nowhere."""
    table = inputs["block_table"].long()
    rows, width = table.shape
    beyond = inputs["k_index_cache_fp8"].shape[0]  # a column for ids that are no page
    slot = torch.arange(width, device=table.device).expand(rows, width)
    first = torch.full((rows, beyond + 1), width, dtype=torch.int64, device=table.device)
    table = table.where((table >= 0) & (table < beyond), beyond)
    first.scatter_reduce_(1, table, slot, "amin")
    first[:, beyond] = width
    return first.gather(1, pages.where((pages >= 0) & (pages < beyond), beyond))


def _by_scores(tolerance, rows, selected, reference, inputs):
    """Compare rank by rank; ``rows`` are those whose sets differ."""
    actual = _scores(selected, rows, inputs).value.float().sort(dim=1, descending=True).values
    target = _scores(reference, rows, inputs).value.float().sort(dim=1, descending=True).values
    # Minus infinity on both sides is padding; NaN on both sides counts as equal officially.
    same = (actual == target) | (actual.isnan() & target.isnan())
    absolute = (actual - target).abs().masked_fill_(same, 0.0)
    relative = absolute / (target.abs() + _EPS)
    relative.masked_fill_(absolute.isinf(), torch.inf)
    wrong = ~same & ~(absolute <= tolerance.atol) & ~(relative <= tolerance.rtol)
    matched = 1.0 - int(wrong.sum()) / selected.numel()
    error = _error(absolute, relative, matched)
    if matched >= tolerance.required_matched_ratio:
        return OutputFinding(error)
    place, rank = _first(wrong)
    first = FirstWrong(
        output=_NAME,
        index=(int(rows[place]), rank),
        expected=_number(target[place, rank]),
        actual=_number(actual[place, rank]),
    )
    detail = (
        f"row {first.index[0]}: the score of rank {rank} is {first.actual}, the reference's is "
        f"{first.expected}; {int(wrong.sum())} of {selected.numel()} ranks are wrong"
    )
    return _failed(error, "wrong-scores", first, detail)


def _wrong_count(selected, inputs):
    """A finding on the first row with too few or too many tokens or other padding, or None."""
    length = inputs["seq_lens"][:, None].clamp(max=selected.shape[1])
    count = (selected >= 0).sum(dim=1, keepdim=True)
    if (count != length).any():
        row = _first(count != length).row
        number, wanted = int(count[row]), int(length[row])
        first = FirstWrong(output=_NAME, index=(row,), expected=wanted, actual=number)
        detail = f"row {row} selects {number} tokens, not {wanted}"
        return _failed(_error(None, None, 0.0), "wrong-count", first, detail)
    stray = selected < -1
    return _refused("wrong-padding", stray, selected, -1) if stray.any() else None


class _Stray(NamedTuple):
    """Members of one side that the other lacks."""

    distance: torch.Tensor
    """(R, N) from the cut, in the direction in which it should not be; 0 for other members."""
    wrong: torch.Tensor
    """(R, N) bool: too far for rounding to explain."""


def _by_members(rows, selected, reference, inputs):
    """Accept members other than the reference's beside the cut; ``rows``: whose sets differ."""
    mine, target = _scores(selected, rows, inputs), _scores(reference, rows, inputs)
    cut, place = target.value.masked_fill(target.value.isinf(), torch.inf).min(1, keepdim=True)
    blur_at_cut = target.blur.gather(1, place)
    selected, reference = selected[rows], reference[rows]
    extra = _stray(cut - mine.value, mine.blur + blur_at_cut, ~_member(selected, reference))
    lost = _stray(target.value - cut, target.blur + blur_at_cut, ~_member(reference, selected))
    wrong = int(extra.wrong.sum()) + int(lost.wrong.sum())
    share = min(1.0, wrong / inputs["seq_lens"].clamp(max=selected.shape[1]).sum().item())
    error = _error(torch.maximum(extra.distance, lost.distance), None, 1.0 - share)
    if extra.wrong.any():
        at, column = _first(extra.wrong)
        row, token = int(rows[at]), int(selected[at, column])
        wanted = f"a token with a score of at least {float(cut[at]):.9g}"
        first = FirstWrong(output=_NAME, index=(row, column), expected=wanted, actual=token)
        detail = (
            f"row {row}: token {token} with the score {float(mine.value[at, column]):.9g} was "
            f"selected, {float(extra.distance[at, column]):.3g} below the cut"
        )
        return _failed(error, "wrong-member", first, detail)
    if lost.wrong.any():
        at, column = _first(lost.wrong)
        row, token = int(rows[at]), int(reference[at, column])
        first = FirstWrong(output=_NAME, index=(row,), expected=token, actual="missing")
        detail = (
            f"row {row}: token {token} with the score {float(target.value[at, column]):.9g} is "
            f"missing, {float(lost.distance[at, column]):.3g} above the cut"
        )
        return _failed(error, "missing-member", first, detail)
    return OutputFinding(error)


def _stray(distance, blur, where):
    distance = distance.where(where, 0.0)
    return _Stray(distance.clamp(min=0.0), ~(distance <= blur))


def _member(tokens, of):
    """(R, N) bool: which tokens of a row are among ``of`` the same row; padding always is."""
    ordered = of.sort(dim=1).values.contiguous()
    place = torch.searchsorted(ordered, tokens.contiguous()).clamp_(max=of.shape[1] - 1)
    return (ordered.gather(1, place) == tokens) | (tokens < 0)


class _Place(NamedTuple):
    """The first true element of a mask."""

    row: int
    column: int


def _first(mask):
    return _Place(*divmod(int(mask.reshape(-1).int().argmax()), mask.shape[1]))


def _number(value):
    number = float(value)
    return number if number - number == 0.0 else str(number)


def _largest(values):
    if values is None or not values.numel():
        return None
    number = float(values.max())
    return number if number - number == 0.0 else None


def _error(absolute, relative, matched):
    return OutputError(
        output=_NAME,
        max_abs=_largest(absolute),
        max_rel=_largest(relative),
        matched_ratio=matched,
        ok=True,
    )


def _failed(error, code, first, detail):
    update = {"ok": False, "first_wrong": first, "detail": detail}
    return OutputFinding(error.model_copy(update=update), Reason(code=code, detail=detail))


def _refused(code, mask, selected, expected):
    row, column = _first(mask)
    token = int(selected[row, column])
    first = FirstWrong(output=_NAME, index=(row, column), expected=expected, actual=token)
    detail = f"element [{row}, {column}] is {token}, expected {expected}"
    matched = 1.0 - int(mask.sum()) / mask.numel()
    return _failed(_error(None, None, matched), code, first, detail)
