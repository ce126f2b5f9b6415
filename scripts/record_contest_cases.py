"""Records what an installed FlashInfer-Bench says of small outputs, as test data.

The contest tier promises the verdicts of FlashInfer-Bench. The package is no dependency of
kopt, so its verdicts are recorded once and compared by tests/harness/test_contest_parity.py,
which takes its tensors from this file. Run it again in an environment that holds PyTorch and
a newer flashinfer-bench, and look at what changed:

    python scripts/record_contest_cases.py --commit SHA --date DAY

All values are chosen here; from the package comes the verdict alone. Its evaluators wait for
a CUDA device after a call: without one, ``torch.cuda.synchronize`` is replaced by a function
that returns, as there is nothing to wait for on a CPU.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

DATA = Path(__file__).resolve().parents[1] / "tests" / "harness" / "data"
TOLERANCES = ((1e-2, 1e-2), (1.0, 0.3), (1e-3, 1e-2), (1e-5, 1e-3))
PAGE, WIDTH, TOPK = 64, 128, 8
ATTENTION = "dsa_sparse_attention_h16_ckv512_kpe64_topk2048_ps64"
NAMES = {
    "default": "parity",
    "lowbit": "parity_moe_fp8_block_scale",
    "attention": ATTENTION,
    "topk": "dsa_topk_indexer_parity",
}
"""Definition names by which FlashInfer-Bench chooses each of its evaluators."""

Case = dict[str, Any]


def expand(runs: list[list[Any]], dtype: str, shape: list[int] | None = None) -> torch.Tensor:
    """A tensor of ``[value, count]`` runs; NaN and the infinities are strings in JSON."""
    values = [float(value) for value, count in runs for _ in range(count)]
    tensor = torch.tensor(values, dtype=torch.float64).to(getattr(torch, dtype))
    return tensor.reshape(shape if shape is not None else [len(values)])


def scores_of(case: Case) -> list[float | str]:
    """The score of each token: about 0 in two pages, about 98 in two, but for a change."""
    rng = random.Random(case["scores"])
    near = [round(rng.choice([-0.02, 0.0, 0.01, 0.5]) + rng.gauss(0, 0.006), 7) for _ in range(128)]
    far = [round(rng.choice([97.0, 98.0, 99.0]) + rng.gauss(0, 0.4), 5) for _ in range(128)]
    scores: list[float | str] = [*near, *far]
    for token, score in case.get("change", []):
        scores[token] = score
    return scores


def topk_inputs(case: Case) -> dict[str, torch.Tensor]:
    """Inputs of an indexer in which every token has exactly the score of ``scores_of``.

    A key is 1 in its first place, or in its second where the score is negative; two heads
    with the weights 1 and -1 read one place each, and the token's scale is the magnitude.
    """
    scores = torch.tensor([float(s) for s in scores_of(case)], dtype=torch.float32)
    pages, rows = len(scores) // PAGE, len(case["seq_lens"])
    keys = torch.zeros(pages, PAGE, WIDTH)
    negative = scores.reshape(pages, PAGE) < 0
    keys[..., 0], keys[..., 1] = (~negative).float(), negative.float()
    values = keys.to(torch.float8_e4m3fn).view(torch.uint8).reshape(pages, -1)
    scales = scores.abs().reshape(pages, PAGE).contiguous().view(torch.uint8).reshape(pages, -1)
    query = torch.zeros(rows, 2, WIDTH)
    query[:, 0, 0] = query[:, 1, 1] = 1.0
    packed = torch.cat((values, scales), dim=1).contiguous()
    return {
        "q_index_fp8": query.to(torch.float8_e4m3fn),
        "k_index_cache_fp8": packed.view(torch.int8).reshape(pages, PAGE, 1, WIDTH + 4),
        "weights": torch.tensor([[1.0, -1.0]]).repeat(rows, 1),
        "seq_lens": torch.tensor(case["seq_lens"], dtype=torch.int32),
        "block_table": torch.tensor(case["block_table"], dtype=torch.int32).reshape(rows, -1),
    }


def element_tables() -> Iterator[Case]:
    """Single elements on both sides of the border that each pair of tolerances draws."""
    references = (0.0, 1e-30, 1e-8, 3e-4, 0.5, 1.0, 2.0, 3.3333, -7.25, 1e4, -3e38)
    for atol, rtol in TOLERANCES:
        for dtype in ("float32", "bfloat16"):
            elements = []
            for reference in references:
                expected = float(torch.tensor(reference).to(getattr(torch, dtype)))
                for edge in (atol, rtol * (abs(expected) + 1e-8)):
                    elements += [[expected, x] for x in _around(expected, edge, dtype)]
            yield {"atol": atol, "rtol": rtol, "dtype": dtype, "elements": elements}


def _around(reference: float, edge: float, dtype: str) -> list[float]:
    """The value ``edge`` away, its neighbours, and its mirror image."""
    kind = getattr(torch, dtype)
    centre = torch.tensor(reference + edge, dtype=torch.float64).to(kind)
    up = torch.nextafter(centre, torch.tensor(math.inf, dtype=kind))
    down = torch.nextafter(centre, torch.tensor(-math.inf, dtype=kind))
    mirror = torch.tensor(reference - edge, dtype=torch.float64).to(kind)
    return [float(value) for value in (down, centre, up, mirror) if value.isfinite()]


def output_cases() -> Iterator[Case]:
    """Whole outputs: shares of wrong elements, and values that are no numbers."""
    for numel, ratio in ((10, 0.1), (10, 0.4), (100, 0.9), (1000, 0.95), (30, 0.9), (7, 1.0)):
        border = round((1 - ratio) * numel)
        for wrong in sorted({max(0, border - 1), border, min(numel, border + 1)}):
            actual = [[5.0, wrong], [1.0, numel - wrong]]
            yield _output(f"{wrong}-of-{numel}", [[1.0, numel]], actual, ratio=ratio)
    for name in ("nan", "inf", "-inf"):
        yield _output(f"one-{name}", [[1.0, 50]], [[1.0, 49], [name, 1]], ratio=0.5)
        yield _output(f"reference-{name}", [[1.0, 3], [name, 1]], [[1.0, 3], [1e6, 1]])
        yield _output(f"both-{name}", [[1.0, 3], [name, 1]], [[1.0, 3], [name, 1]])
    yield _output("empty", [], [])
    yield _output("scalar", [[2.5, 1]], [[2.5, 1]], shape=[])
    yield _output("overflow", [[3e38, 1], [1.0, 1]], [[-3e38, 1], [1.0, 1]])
    yield _output("subnormal", [[1e-40, 4]], [[0.0, 4]])
    yield _output("tiny-is-zero", [[9e-3, 64]], [[0.0, 64]])
    for factor in (1.29, 1.31):
        yield _output(f"scaled-{factor}", [[4.0, 32]], [[4.0 * factor, 32]], loose=True)
    yield _output("rows-of-rubbish", [[2.0, 1000]], [[1e30, 90], [2.0, 910]], loose=True)
    yield _output("too-many", [[2.0, 1000]], [[1e30, 110], [2.0, 890]], loose=True)
    yield _output("default-ratio", [[1.0, 100]], [[9.0, 5], [1.0, 95]], ratio=None)
    yield _output("default-ratio-over", [[1.0, 100]], [[9.0, 6], [1.0, 94]], ratio=None)


def _output(
    name: str,
    expected: list[list[Any]],
    actual: list[list[Any]],
    *,
    ratio: float | None = 1.0,
    shape: list[int] | None = None,
    loose: bool = False,
) -> Case:
    atol, rtol = (1.0, 0.3) if loose else (1e-2, 1e-2)
    return {
        "id": name,
        "atol": atol,
        "rtol": rtol,
        "required_matched_ratio": 0.9 if loose else ratio,
        "dtype": "float32",
        "shape": shape,
        "expected": expected,
        "actual": actual,
    }


def attention_cases() -> Iterator[Case]:
    """Outputs and ``lse`` of two tokens with two heads of width 3."""
    output, lse = [[0.5, 12]], [[7.0, 4]]
    for name, given in {
        "exact": [output, lse],
        "lse-missing": [output],
        "lse-missing-output-wrong": [[[0.5, 11], [0.6, 1]]],
        "lse-wrong": [output, [[7.0, 3], [7.2, 1]]],
        "lse-natural": [output, [[7.0 * math.log(2.0), 4]]],
        "lse-nan": [output, [[7.0, 3], ["nan", 1]]],
        "lse-minus-infinity": [output, [[7.0, 3], ["-inf", 1]]],
        "output-infinite": [[[0.5, 11], ["inf", 1]], lse],
        "nothing": [],
        "three": [output, lse, lse],
    }.items():
        yield {"id": name, "atol": 1e-2, "rtol": 1e-2, "expected": [output, lse], "actual": given}
    row = [[7.0, 3], ["-inf", 1]]
    for name, given in {"same": row, "finite": lse}.items():
        case = {"id": f"empty-row-{name}", "atol": 1e-2, "rtol": 1e-2}
        yield case | {"expected": [output, row], "actual": [output, given]}


def topk_cases() -> Iterator[Case]:
    """Selections of 8 tokens: chosen ones, then random ones near the border of the rule."""
    yield from _chosen_selections()
    for seed in range(60):
        rng = random.Random(f"swaps {seed}")
        case = _selection(f"random-{seed}", seed)
        rows = [list(row) for row in case["expected"]]
        for index, row in enumerate(rows):
            spare = [t for t in _reachable(case, index) if t not in row]
            for _ in range(rng.randrange(3) if spare else 0):
                row[rng.randrange(TOPK)] = spare.pop(rng.randrange(len(spare)))
            rng.shuffle(row)
        yield case | {"actual": rows, "required_matched_ratio": rng.choice([1.0, 0.9, 0.5])}


def _selection(name: str, seed: int) -> Case:
    """Three rows of random length, one of them often shorter than 8, and the best of each."""
    rng = random.Random(seed)
    lengths = [rng.choice([130, 70, 64]), 100, rng.choice([5, 8, 0])]
    table = [[0, 1, 3], [2, 3, 9], [1, -1, 1]]
    case = {"id": name, "atol": 1e-2, "rtol": 1e-2, "required_matched_ratio": 1.0}
    return _with_best(case | {"scores": seed, "seq_lens": lengths, "block_table": table})


def _with_best(case: Case) -> Case:
    return case | {"expected": [_best(case, row) for row in range(3)]}


def _reachable(case: Case, row: int) -> list[int]:
    """Token ids of a row in order."""
    table, length = case["block_table"][row], case["seq_lens"][row]
    return [table[place // PAGE] * PAGE + place % PAGE for place in range(length)]


def _best(case: Case, row: int) -> list[int]:
    scores = scores_of(case)
    tokens = sorted(_reachable(case, row), key=lambda t: -float(scores[t]))[:TOPK]
    return tokens + [-1] * (TOPK - len(tokens))


def _chosen_selections() -> Iterator[Case]:
    base = _with_best(_selection("exact", 1000) | {"seq_lens": [130, 100, 5]})
    first, second, third = base["expected"]
    spare = next(t for t in _reachable(base, 1) if t not in second)
    changes: dict[str, list[list[int]]] = {
        "exact": [first, second, third],
        "other-order": [first[::-1], second[::-1], third[::-1]],
        "other-padding": [first, second, [-7 if t < 0 else t for t in third]],
        "token-missing": [first, [*second[:-1], -1], third],
        "token-twice": [first, [*second[:-1], second[0]], third],
        "best-missing": [first, [spare, *second[1:]], third],
        "much-worse": [[min(_reachable(base, 0)), *first[1:]], second, third],
        "beyond-the-end": [first, second, [*third[:5], 64 + 6, -1, -1]],
        "page-of-another-row": [[2 * PAGE, *first[1:]], second, third],
        "page-behind-the-end": [first, second, [*third[:5], 3 * PAGE, -1, -1]],
        "page-that-is-none": [first, [9 * PAGE, *second[1:]], third],
        "no-token-at-all": [[-1] * TOPK, [-1] * TOPK, [-1] * TOPK],
        "largest-integer": [first, [2**31 - 1, *second[1:]], third],
    }
    for name, actual in changes.items():
        yield base | {"id": name, "actual": actual}
    loose = {"required_matched_ratio": 0.9}
    yield base | loose | {"id": "one-of-24-missing", "actual": changes["token-missing"]}
    for name, score in (("nan", "nan"), ("largest", 3e38), ("lowest", -3e38)):
        case = base | {"change": [[second[0], score]]}
        yield case | {"id": f"score-{name}-same", "actual": changes["other-order"]}
        yield case | {"id": f"score-{name}-lost", "actual": changes["best-missing"]}
        swapped = [first, [*second[:-1], spare], third]
        yield case | {"id": f"score-{name}-kept", "actual": swapped}


class Official:
    """The evaluators of the installed package, on outputs that are already there."""

    def __init__(self) -> None:
        # Imported here: tests take the tensors of this file where there is no such package.
        config = importlib.import_module("flashinfer_bench.bench.config")
        evaluators = importlib.import_module("flashinfer_bench.bench.evaluators")
        self._config = getattr(config, "ResolvedEvalConfig", config.BenchmarkConfig)
        self._resolve = evaluators.resolve_evaluator
        self._definition = importlib.import_module("flashinfer_bench.data").Definition
        if not torch.cuda.is_available():
            torch.cuda.synchronize = lambda *_: None

    def status(
        self,
        evaluator: str,
        tolerance: Case,
        expected: list[torch.Tensor],
        actual: list[torch.Tensor],
        inputs: dict[str, torch.Tensor] | None = None,
    ) -> str:
        """``PASSED``, or the status with which the evaluator refuses the outputs."""
        document = _definition(NAMES[evaluator], len(expected), inputs or {})
        definition = self._definition.model_validate(document)
        names = ("atol", "rtol", "required_matched_ratio")
        config = self._config(**{n: tolerance[n] for n in names if n in tolerance})

        def solution(*_: Any) -> Any:
            return tuple(actual)

        solution.metadata = SimpleNamespace(destination_passing_style=False)  # type: ignore[attr-defined]
        given = [list((inputs or {"x": torch.zeros(1)}).values())]
        _, refused = self._resolve(definition).check_correctness(
            definition, solution, given, [expected], config, "", "cpu"
        )
        return "PASSED" if refused is None else str(refused.status.value)


def _definition(name: str, outputs: int, inputs: dict[str, torch.Tensor]) -> Case:
    """As little of a definition as the package's model accepts."""
    constants = {"page_size": PAGE, "index_head_dim": WIDTH, "topk": TOPK}
    axes = {key: {"type": "const", "value": value} for key, value in constants.items()}
    some = {"shape": ["n"], "dtype": "float32"}
    return {
        "name": name,
        "op_type": "parity",
        "axes": axes | {"n": {"type": "var"}},
        "inputs": dict.fromkeys(inputs or ["x"], some),
        "outputs": {f"y{index}": some for index in range(outputs)},
        "reference": "def run(*inputs):\n    return inputs[0]\n",
    }


def record_elements(official: Official) -> list[Case]:
    """Each element as an output of its own."""
    tables = []
    for table in element_tables():
        kind = table["dtype"]
        judged = [
            [
                y,
                x,
                official.status(
                    "default", table, [expand([[y, 1]], kind)], [expand([[x, 1]], kind)]
                )
                == "PASSED",
            ]
            for y, x in table["elements"]
        ]
        tables.append(table | {"elements": judged})
    return tables


def record_outputs(official: Official) -> list[Case]:
    """Each output under the default evaluator and the one for low precision."""
    cases = []
    for case in output_cases():
        sides = [
            [expand(case[side], case["dtype"], case["shape"])] for side in ("expected", "actual")
        ]
        status = {name: official.status(name, case, *sides) for name in ("default", "lowbit")}
        cases.append(case | {"status": status})
    return cases


def record_attention(official: Official) -> list[Case]:
    """Output and ``lse``."""
    return [
        case
        | {
            "status": official.status(
                "attention", case, *(attention(case, s) for s in ("expected", "actual"))
            )
        }
        for case in attention_cases()
    ]


def attention(case: Case, side: str) -> list[torch.Tensor]:
    """The outputs of one side; a third one, which is one too many, repeats ``lse``."""
    shapes = ([2, 2, 3], [2, 2], [2, 2])
    dtypes = ("bfloat16", "float32", "float32")
    return [
        expand(runs, dtype, shape)
        for runs, dtype, shape in zip(case[side], dtypes, shapes, strict=False)
    ]


def record_topk(official: Official) -> list[Case]:
    """Selections of tokens."""
    cases = []
    for case in topk_cases():
        sides = [[torch.tensor(case[side], dtype=torch.int32)] for side in ("expected", "actual")]
        status = official.status("topk", case, *sides, topk_inputs(case))
        cases.append(case | {"status": status})
    return cases


RECORDERS: dict[str, Callable[[Official], list[Case]]] = {
    "attention": record_attention,
    "elements": record_elements,
    "outputs": record_outputs,
    "topk": record_topk,
}


def main() -> None:
    """Writes one file for each kind of case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commit", default=None, help="of the installed package's source")
    parser.add_argument("--date", default=None, help="of that commit")
    parser.add_argument("--out", type=Path, default=DATA)
    arguments = parser.parse_args()
    source = {
        "package": "flashinfer-bench",
        "version": importlib.metadata.version("flashinfer-bench"),
        "commit": arguments.commit,
        "commit_date": arguments.date,
        "torch": torch.__version__,
    }
    official = Official()
    for name, record in RECORDERS.items():
        lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in record(official))
        path = arguments.out / f"contest_{name}.json"
        path.write_text(f'{{"schema":1,"source":{json.dumps(source)},"cases":[\n{lines}\n]}}\n')
        print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
