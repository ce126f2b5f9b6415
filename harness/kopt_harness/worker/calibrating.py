"""Can a workload tell right from wrong: null kernels against its own comparator.

The judge's part of ``kopt calibrate``. For one generator it draws sets, computes their
answers, changes the last set as it changes sets between timed calls, and gives what each null
kernel leaves to the same comparison as the outputs of a solution. Sets that are drawn
here are gone afterwards.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from kopt_harness.check import compare_all
from kopt_harness.check.null_kernels import ROUNDED, Given, declared, differs, null_kernels
from kopt_harness.schema import Definition

from .pool import InputSet, Pool

__all__ = ["calibrate"]

FULL_COMPARE_BYTES = 4 << 20
SAMPLED_ROWS = 1024
"""As the judge compares outputs of timed calls."""

CHEAP_REFERENCE_S = 4.0
"""Where the reference takes longer, what needs it many times is left out, and said so."""


def calibrate(
    definition: Definition,
    pool: Pool,
    comparator: Any,
    generator: str,
    synchronize: Callable[[], None],
) -> dict[str, Any]:
    """Null kernels on one generator of the workload that is bound.

    Args:
        definition: the operator.
        pool: bound to a workload; it has the same sets afterwards as before.
        comparator: the definition's ``check.py``, or None.
        generator: by name.
        synchronize: waits for the device.

    Returns:
        A JSON-able ``GeneratorCalibration`` of ``kopt_harness.calibrate``.
    """
    start = time.perf_counter()
    known = len(pool.sets)
    try:
        found = _Calibration(definition, pool, comparator, synchronize).run(generator)
    finally:
        del pool.sets[known:]
    return {**found, "wall_s": round(time.perf_counter() - start, 3)}


class _Calibration:
    """State of one run."""

    def __init__(
        self,
        definition: Definition,
        pool: Pool,
        comparator: Any,
        synchronize: Callable[[], None],
    ) -> None:
        import torch

        self._definition = definition
        self._pool = pool
        self._comparator = comparator
        self._synchronize = synchronize
        self._rng = torch.Generator()
        self._rng.seed()
        self._reference_s = math.inf
        self._problems: list[dict[str, str]] = []
        self._asked: tuple[Mapping[str, Any], Callable[[str], Any]] | None = None

    def run(self, generator: str) -> dict[str, Any]:
        first = next(iter(self._pool.generators))
        before = self._draw(generator)
        others = {"last-call": self._answer(before)}
        if generator == first or self._is_cheap():
            oldest = self._draw(first)
            others["stale"] = self._answer(oldest)
            _free(oldest)
        chosen = self._draw(generator)
        influence = self._influences(before, chosen)
        _free(before)
        varied = self._vary(chosen, others)
        given = Given(
            self._definition,
            chosen.values,
            self._expected(chosen),
            self._answer(chosen),
            others,
            self._rng,
        )
        self._check_reference(given, chosen.kind)
        return {
            "generator": generator,
            "kind": chosen.kind,
            "nulls": self._nulls(given, chosen.kind),
            "problems": self._problems,
            "influence": influence,
            "varied": varied,
            "reference_s": round(self._reference_s, 3),
        }

    def _draw(self, generator: str) -> InputSet:
        return self._pool.sets[self._pool.draw(generator)]

    def _expected(self, chosen: InputSet) -> dict[str, Any]:
        if chosen.expected is None:
            chosen.expected = self._reference(chosen.values)
        return chosen.expected

    def _reference(self, values: Mapping[str, Any]) -> dict[str, Any]:
        sets = self._pool.sets
        sets.append(InputSet(generator="", kind="stress", values=dict(values)))
        start = time.perf_counter()
        outputs = self._pool.expected(len(sets) - 1)
        self._synchronize()
        # The fastest of several: on a busy machine the others say little of the reference.
        self._reference_s = min(self._reference_s, time.perf_counter() - start)
        sets.pop()
        return outputs

    def _answer(self, chosen: InputSet) -> dict[str, Any]:
        return declared(self._definition, self._expected(chosen))

    def _is_cheap(self) -> bool:
        return self._reference_s <= CHEAP_REFERENCE_S

    def _vary(self, chosen: InputSet, others: dict[str, dict[str, Any]]) -> str:
        """Changes the set; the answer that was right before is one more wrong one."""
        import torch

        expected = self._expected(chosen)
        remembered = {name: t.clone() for name, t in self._answer(chosen).items()}
        number = next(n for n, each in enumerate(self._pool.sets) if each is chosen)
        if not self._pool.vary(number):
            return "no"
        others["before-variation"] = remembered
        if not self._is_cheap():
            return "unchecked"
        again = declared(self._definition, self._reference(chosen.values))
        self._synchronize()
        if all(torch.equal(again[name], t) for name, t in self._answer(chosen).items()):
            return "yes"
        tiers = self._tiers(chosen.values, expected, again, "stress")
        if tiers["strict"] != "pass":
            self._problem("wrong-variation", f"the reference disagrees with vary(): {tiers}")
        return "yes"

    def _check_reference(self, given: Given, kind: str) -> None:
        """The right answer must be one, and on real use it must not always be the same."""
        tiers = self._tiers(given.inputs, given.expected, given.right, kind)
        for tier, verdict in tiers.items():
            if verdict not in ("pass", "n/a"):
                detail = f"the reference in the declared types is {verdict} in the {tier} tier"
                self._problem("reference-refused", detail)
        if kind != "contest":
            return
        for name, other in given.others["last-call"].items():
            if not differs(given, {**given.right, name: other}, self._comparator):
                detail = f"two input sets have one and the same {name!r}"
                self._problem("constant-reference", detail)

    def _sampled(
        self, one: Mapping[str, Any], other: Mapping[str, Any]
    ) -> tuple[Any, Any, dict[str, Any]]:
        """The same random rows of both, of outputs that a timed call has compared by samples."""
        import torch

        expected, actual, picked = dict(one), dict(other), {}
        for name, tensor in other.items():
            if tensor.nbytes > FULL_COMPARE_BYTES:
                count = tensor.numel() // tensor.shape[-1]
                drawn = torch.randint(count, (SAMPLED_ROWS,), generator=self._rng)
                picked[name] = rows = drawn.to(tensor.device)
                expected[name] = one[name].view(count, -1)[rows]
                actual[name] = tensor.view(count, -1)[rows]
        return expected, actual, picked

    def _verdicts(self, given: Given, outputs: Mapping[str, Any], kind: str) -> dict[str, str]:
        """Both tiers; where only strict applies, a wrong row of a sample already decides."""
        if kind == "stress" and self._comparator is None:
            expected, actual, rows = self._sampled(given.expected, outputs)
            tiers = self._tiers(given.inputs, expected, actual, kind, rows)
            if tiers["strict"] != "pass":
                return tiers
        return self._tiers(given.inputs, given.expected, outputs, kind)

    def _nulls(self, given: Given, kind: str) -> list[dict[str, str]]:
        results = []
        for kernel in null_kernels(given, self._comparator):
            if differs(given, kernel.outputs, self._comparator):
                tiers = self._verdicts(given, kernel.outputs, kind)
            else:
                tiers = {"contest": "not-applicable", "strict": "not-applicable"}
            results.append({"name": kernel.name, **tiers})
            if tiers["strict"] == "pass" and not kernel.name.startswith(ROUNDED):
                detail = f"the strict tier accepts the null kernel {kernel.name}"
                self._problem("null-kernel-passes", detail)
        return results

    def _influences(self, one: InputSet, other: InputSet) -> dict[str, str]:
        """By input: whether the answer changes where only this input is taken from elsewhere."""
        expected = self._expected(one)
        self._expected(other)
        if one.kind != "contest" or not self._is_cheap():
            return {}
        found = {}
        for name, value in one.values.items():
            swapped = self._another(name, value, other.values[name])
            if swapped is None:
                found[name] = "untested"
                continue
            outputs = declared(self._definition, self._reference({**one.values, name: swapped}))
            tiers = self._tiers(one.values, expected, outputs, "stress")
            found[name] = "no" if tiers["strict"] == "pass" else "yes"
        return found

    def _another(self, name: str, value: Any, other: Any) -> Any:
        """A different legal value of an input; None where there is none at hand."""
        import torch

        if name in self._definition.kopt.static_inputs:
            raw = value.view(torch.uint8) if value.dtype.itemsize == 1 else value
            return raw.roll(1, dims=0).view(value.dtype)
        if isinstance(value, float):
            return 2.0 * value
        if isinstance(value, torch.Tensor):
            return None if torch.equal(_bytes(value), _bytes(other)) else other
        return None if value == other else other

    def _tiers(
        self,
        inputs: Mapping[str, Any],
        expected: Any,
        actual: Any,
        kind: Any,
        rows: Mapping[str, Any] | None = None,
    ) -> dict[str, str]:
        if self._asked is None or self._asked[0] is not inputs:
            self._asked = (inputs, self._pool.magnitudes(inputs))
        magnitudes, picked = self._asked[1], rows or {}
        tiers = compare_all(
            self._definition,
            inputs,
            expected,
            actual,
            self._comparator,
            kind=kind,
            magnitudes=lambda name: magnitudes(name)[picked.get(name, slice(None))],
        )
        return {name: tier.verdict for name, tier in tiers.items()}

    def _problem(self, code: str, detail: str) -> None:
        self._problems.append({"code": code, "detail": detail})


def _free(used: InputSet) -> None:
    used.values.clear()
    used.expected = None


def _bytes(tensor: Any) -> Any:
    import torch

    return tensor.reshape(-1).view(torch.uint8)
