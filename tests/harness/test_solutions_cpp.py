"""The C++ solutions that ship: built by kopt, called, and judged against the references."""

from __future__ import annotations

import importlib.util
import json
import math
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import psutil
import pytest
import torch
from kopt_harness.build import build_in_worker
from kopt_harness.build.loading import load
from kopt_harness.check import compare_all
from kopt_harness.pack import pack, read_tunables
from kopt_harness.schema import Definition

KERNELS = Path(__file__).parents[2] / "kernels"
DECODE = "gdn_decode_qk4_v8_d128_k_last"
PREFILL = "gdn_prefill_qk4_v8_d128_k_last"
FOLDERS = {
    DECODE: KERNELS / DECODE / "solutions" / "cpp-recurrent",
    PREFILL: KERNELS / PREFILL / "solutions" / "cpp-chunked",
}
DIRECTIONS = {
    "fusion",
    "latency-hiding",
    "launch-overhead",
    "memory-traffic",
    "parallelism",
    "precision-path",
    "tiling",
    "vectorisation",
}
SETTINGS: dict[str, dict[str, dict[str, int]]] = {
    DECODE: {
        "default": {},
        "wide": {
            "ROWS": 1,
            "VECTOR_BYTES": 64,
            "THREADS": 2,
            "STATES_PER_THREAD": 4,
            "PREFETCH_ROWS": 8,
            "NT_STORES": 1,
        },
    },
    PREFILL: {
        "default": {},
        "wide": {
            "CHUNK": 64,
            "COLS": 128,
            "TILE_ROWS": 8,
            "TILE_VECTORS": 4,
            "VECTOR_BYTES": 64,
            "HEADS_PER_TASK": 2,
            "THREADS": 2,
            "TOKENS_PER_THREAD": 16,
            "RECURRENT_BELOW": 2,
        },
    },
}
EACH = pytest.mark.parametrize(
    ("name", "setting"), [(name, key) for name, settings in SETTINGS.items() for key in settings]
)
SMALL = {
    DECODE: {"batch_size": 3},
    PREFILL: {"total_seq_len": 150, "num_seqs": 5, "len_cu_seqlens": 6},
}

Outputs = dict[str, torch.Tensor]


def _prefill_axes(tokens: int, seqs: int) -> dict[str, int]:
    return {"total_seq_len": tokens, "num_seqs": seqs, "len_cu_seqlens": seqs + 1}


@cache
def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Operator(NamedTuple):
    """A definition with one built solution of it."""

    definition: Definition
    run: Callable[..., Any]

    def draw(self, generator: str, *, seed: int = 0, **axes: int) -> dict[str, Any]:
        """Inputs of a small workload, or of ``axes``."""
        inputs = _module(KERNELS / self.definition.name / "inputs.py")
        bound = self.definition.bind(axes or SMALL[self.definition.name])
        rng = torch.Generator().manual_seed(seed)
        drawn: dict[str, Any] = inputs.GENERATORS[generator].draw(bound, rng)
        return drawn

    def precise(self, inputs: dict[str, Any]) -> Outputs:
        """Unrounded outputs, by name."""
        reference = _module(KERNELS / self.definition.name / "reference.py")
        values = reference.precise(*inputs.values())
        return dict(zip(self.definition.outputs, values, strict=True))

    def poisoned(self, inputs: dict[str, Any]) -> Outputs:
        """Outputs of the right form, full of NaN."""
        v = inputs["v"]
        seqs = len(inputs["cu_seqlens"]) - 1 if "cu_seqlens" in inputs else len(v)
        return {
            "output": torch.full_like(v, math.nan),
            "new_state": torch.full((seqs, 8, 128, 128), math.nan),
        }

    def solve(self, inputs: dict[str, Any]) -> Outputs:
        """What the solution writes."""
        outputs = self.poisoned(inputs)
        self.run(*inputs.values(), *outputs.values())
        return outputs


Build = Callable[..., Operator]


@pytest.fixture(scope="module")
def build(builds: Path) -> Build:
    """Builds a shipped solution under a named or given setting, once."""
    built: dict[str, Operator] = {}

    def get(name: str, setting: str = "default", **tunables: int) -> Operator:
        chosen = SETTINGS[name][setting] | tunables
        key = name + json.dumps(chosen, sort_keys=True)
        if key not in built:
            text = (KERNELS / name / "definition.json").read_text()
            solution = pack(FOLDERS[name], tunables=chosen).solution
            result = build_in_worker(solution, "cpu", builds)
            assert result.ok, result.log
            assert "warning:" not in result.log, result.log
            entry = load(Path(result.path), solution)
            built[key] = Operator(Definition.model_validate_json(text), entry)
        return built[key]

    return get


def _assert_right(operator: Operator, inputs: dict[str, Any], kind: Any = "stress") -> None:
    """Passes both tiers where they apply, and the state is as good as float32 can be."""
    expected, actual = operator.precise(inputs), operator.solve(inputs)
    tiers = compare_all(operator.definition, inputs, expected, actual, kind=kind)
    assert tiers["strict"].verdict == "pass", tiers["strict"]
    assert tiers["contest"].verdict == ("pass" if kind == "contest" else "n/a"), tiers["contest"]
    difference = (actual["new_state"].double() - expected["new_state"].double()).norm()
    assert difference <= 2e-6 * expected["new_state"].double().norm()


@EACH
def test_every_generator_is_answered_rightly(build: Build, name: str, setting: str) -> None:
    """Ragged, extreme, huge, zero and absent inputs all pass."""
    operator = build(name, setting)
    for generator in _module(KERNELS / name / "inputs.py").GENERATORS.values():
        for seed in (1, 2):
            _assert_right(operator, operator.draw(generator.name, seed=seed), generator.kind)


@pytest.mark.parametrize("setting", SETTINGS[DECODE])
def test_decode_is_right_at_every_batch_size(build: Build, setting: str) -> None:
    """All batch sizes of the workloads, with one and with several threads."""
    lines = (KERNELS / DECODE / "workloads.jsonl").read_text().splitlines()
    sizes = sorted({json.loads(line)["axes"]["batch_size"] for line in lines})
    assert sizes[0] == 1
    operator = build(DECODE, setting)
    for size in sizes:
        _assert_right(operator, operator.draw("typical", batch_size=size), "contest")


@pytest.mark.parametrize("setting", SETTINGS[PREFILL])
@pytest.mark.parametrize(
    ("tokens", "seqs"), [(1, 1), (6, 1), (16, 1), (35, 2), (64, 1), (129, 1), (461, 2), (959, 4)]
)
def test_prefill_is_right_at_every_length(
    build: Build, setting: str, tokens: int, seqs: int
) -> None:
    """Fewer tokens than a tile, whole chunks, remainders, several sequences."""
    operator = build(PREFILL, setting)
    inputs = operator.draw("typical", seed=tokens, **_prefill_axes(tokens, seqs))
    _assert_right(operator, inputs, "contest")


@pytest.mark.parametrize("setting", SETTINGS[PREFILL])
def test_prefill_of_every_length_in_one_batch(build: Build, setting: str) -> None:
    """Lengths 0 to 70 side by side; the state of the empty sequence is zero."""
    operator = build(PREFILL, setting)
    lengths = torch.arange(71)
    ends = torch.cat((torch.zeros(1), lengths.cumsum(0))).long()
    inputs = operator.draw("typical", **_prefill_axes(int(ends[-1]), 71)) | {"cu_seqlens": ends}
    _assert_right(operator, inputs)
    assert not operator.solve(inputs)["new_state"][0].any()


@EACH
def test_scale_zero_and_none_stand_for_the_default(build: Build, name: str, setting: str) -> None:
    """Both give bitwise what 1/sqrt(128) gives, and another factor something else."""
    operator = build(name, setting)
    inputs = operator.draw("typical") | {"scale": 1.0 / math.sqrt(128.0)}
    explicit = operator.solve(inputs)["output"]
    assert torch.equal(operator.solve(inputs | {"scale": 0.0})["output"], explicit)
    assert torch.equal(operator.solve(inputs | {"scale": None})["output"], explicit)
    assert not torch.equal(operator.solve(inputs | {"scale": 1.0})["output"], explicit)


@EACH
def test_decay_beyond_float32_forgets_everything(build: Build, name: str, setting: str) -> None:
    """Rates of e^100 and steps of 1000 leave the newest token alone, without NaN."""
    operator = build(name, setting)
    inputs = operator.draw("typical")
    inputs["A_log"] = torch.full((8,), 100.0)
    inputs["a"] = torch.full_like(inputs["a"], 1000.0)
    _assert_right(operator, inputs)


@EACH
def test_a_nan_stays_a_nan(build: Build, name: str, setting: str) -> None:
    """A NaN of any payload in v reaches its row as NaN and no other sequence."""
    operator = build(name, setting)
    inputs = operator.draw("typical")
    bits = inputs["v"].view(torch.int16)
    bits.reshape(-1, 8, 128)[0, 3, 5] = 0x7FFF
    outputs = operator.solve(inputs)
    assert outputs["output"].reshape(-1, 8, 128)[0, 3, 5].isnan()
    assert outputs["new_state"][0, 3, 5].isnan().all()
    assert outputs["new_state"][1:].isfinite().all()


@EACH
def test_answers_repeat_bitwise(build: Build, name: str, setting: str) -> None:
    """How the threads share the work does not show."""
    operator = build(name, setting)
    inputs = operator.draw("typical")
    first = operator.solve(inputs)
    for _ in range(5):
        again = operator.solve(inputs)
        assert all(torch.equal(first[key], again[key]) for key in first)


@EACH
def test_nothing_runs_on_after_the_call(build: Build, name: str, setting: str) -> None:
    """No thread is left, and nothing writes into outputs that are poisoned at once."""
    operator = build(name, setting)
    axes = {"batch_size": 16} if name == DECODE else _prefill_axes(300, 3)
    inputs = operator.draw("typical", **axes)
    outputs = operator.poisoned(inputs)
    before = psutil.Process().num_threads()
    operator.run(*inputs.values(), *outputs.values())
    for tensor in outputs.values():
        tensor.fill_(math.nan)
    assert psutil.Process().num_threads() <= before
    time.sleep(0.02)
    assert all(tensor.isnan().all() for tensor in outputs.values())


@EACH
def test_any_alignment_will_do(build: Build, name: str, setting: str) -> None:
    """Outputs and state that start in the middle of a vector get the same answers."""
    operator = build(name, setting)
    inputs = operator.draw("typical")
    aligned = operator.solve(inputs)

    def shifted(tensor: torch.Tensor) -> torch.Tensor:
        room = torch.empty(tensor.numel() + 1, dtype=tensor.dtype)
        room[1:] = tensor.reshape(-1)
        return room[1:].view(tensor.shape)

    inputs |= {key: shifted(inputs[key]) for key in ("q", "k", "v", "state")}
    outputs = {key: shifted(tensor) for key, tensor in operator.poisoned(inputs).items()}
    operator.run(*inputs.values(), *outputs.values())
    for key, tensor in outputs.items():
        assert torch.equal(tensor, aligned[key])


@pytest.mark.parametrize("setting", SETTINGS[DECODE])
def test_decode_may_update_the_state_in_place(build: Build, setting: str) -> None:
    """With new_state in the memory of state, the answers are the same."""
    operator = build(DECODE, setting)
    inputs = operator.draw("typical")
    apart = operator.solve(inputs)
    outputs = operator.poisoned(inputs) | {"new_state": inputs["state"]}
    operator.run(*inputs.values(), *outputs.values())
    assert all(torch.equal(outputs[key], apart[key]) for key in apart)


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda x: {"k": x["k"].float()}, TypeError, "k does not have"),
        (lambda x: {"v": x["v"][:1]}, ValueError, "v has the wrong shape"),
        (lambda x: {"state": x["state"].transpose(-1, -2)}, ValueError, "state is not contiguous"),
        (lambda x: {"q": x["q"].reshape(-1)}, ValueError, "q has 1 dimensions"),
    ],
    ids=["dtype", "shape", "layout", "dimensions"],
)
def test_wrong_arguments_are_named(
    build: Build,
    name: str,
    change: Callable[[dict[str, Any]], dict[str, Any]],
    error: type[Exception],
    message: str,
) -> None:
    """A tensor of the wrong form is refused by name before anything is written."""
    operator = build(name)
    inputs = operator.draw("typical")
    outputs = operator.poisoned(inputs)
    with pytest.raises(error, match=message):
        operator.run(*(inputs | change(inputs)).values(), *outputs.values())
    assert all(tensor.isnan().all() for tensor in outputs.values())


@pytest.mark.parametrize(
    "ends", [[0, 90, 60, 150, 150, 150], [0, 1, 2, 3, 4, 149], [1, *[150] * 5]]
)
def test_prefill_refuses_lengths_that_do_not_fit(build: Build, ends: list[int]) -> None:
    """Bounds that decrease or do not span the tokens would read outside the tensors."""
    operator = build(PREFILL)
    inputs = operator.draw("typical") | {"cu_seqlens": torch.tensor(ends)}
    with pytest.raises(ValueError, match="cu_seqlens"):
        operator.solve(inputs)


@pytest.mark.parametrize("name", FOLDERS)
def test_every_tunable_serves_a_known_direction(name: str) -> None:
    """Each knob has a choice, a default among its values, and directions of the catalogue."""
    for tunable in read_tunables(FOLDERS[name]).values():
        assert len(set(tunable.values)) > 1
        assert tunable.default in tunable.values
        assert tunable.directions
        assert set(tunable.directions) <= DIRECTIONS


@pytest.mark.slow
@pytest.mark.parametrize("name", FOLDERS)
def test_every_declared_value_builds_and_passes(build: Build, name: str) -> None:
    """No value that a search may choose is broken."""
    for key, tunable in read_tunables(FOLDERS[name]).items():
        for value in set(tunable.values) - {tunable.default}:
            operator = build(name, **{key: value})
            _assert_right(operator, operator.draw("typical"), "contest")
