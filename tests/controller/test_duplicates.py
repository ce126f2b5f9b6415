"""What was rejected is not measured again in other words, and everything else is."""

import json
from typing import Any

import pytest
from kopt_controller.cli import main
from kopt_controller.duplicates import fingerprint, refusal_of, similarity
from kopt_controller.evidence import collect, pool
from kopt_controller.memory import Memory, RoundMemory
from kopt_controller.simulated import SimulatedDevice
from kopt_harness.archive import Archive
from kopt_harness.errors import NotFoundError
from kopt_harness.schema import BuildSpec, Solution, SourceFile, Verdict

Toy = Any

CUDA = """\
// Adds one, four at a time.
__global__ void add(const float* x, float* y, int n) {
    int row = blockIdx.x * 256 + threadIdx.x;
    float value = __ldg(x + row);
    float other = __ldg(x + row + 1);
    for (int step = 0; step < 4; step++) { value = fmaxf(value, other) * 2.0f; }
    if (row < n) { y[row] = value + other; }
}
"""
PYTHON = '''\
def run(x, y):
    """Adds one."""
    scale = 2
    for index in range(8):
        y[index] = min(x[index], scale)
'''


def _solution(content: str, path: str = "kernel.cu", language: str = "cuda") -> Solution:
    spec = BuildSpec.model_validate({"language": language, "entry_point": f"{path}::run"})
    return Solution(
        name="new",
        definition="d",
        author="a",
        spec=spec,
        sources=(SourceFile(path=path, content=content),),
    )


def _memory(solution: Solution, **trial: Any) -> Memory:
    given = {"verdict": "pass", "passed": False, "ratio": 1.3, "ci": (1.2, 1.4), **trial}
    only = {"name": "old", "sha256": solution.sha256, "family": None, "settings": {}, **given}
    past = RoundMemory.model_validate(
        {
            "run": "r1",
            "round": 3,
            "direction": "tiling",
            "bottleneck": "memory",
            "regime": "n=1",
            "incumbent": "00",
            "label": "reject",
            "code": "gate",
            "ratio": None,
            "promoted": False,
            "swept": None,
            "trials": [only],
        }
    )
    return Memory(rounds=(past,))


def _refused(new: Solution, old: Solution, **trial: Any) -> Any:
    return refusal_of(new, _memory(old, **trial), {old.sha256: old}.__getitem__)


SAME_CUDA = (
    CUDA.replace("// Adds one, four at a time.\n", "/* other words */"),
    CUDA.replace("    ", "\t").replace("{ ", "{\n"),
    CUDA.replace("value", "v").replace("row", "position"),
    CUDA.replace("void add", "void plus_one"),
)
OTHER_CUDA = (
    CUDA.replace("256", "128"),
    CUDA.replace("__ldg", "__ldcs"),
    CUDA.replace("fmaxf", "fminf"),
    CUDA.replace("value + other", "value - other"),
    CUDA.replace("value + other", "other + value + other"),
    CUDA.replace("step < 4", "step < n"),
)


@pytest.mark.parametrize("content", SAME_CUDA)
@pytest.mark.parametrize("verdict", ["pass", "fail"])
def test_another_wording_is_refused_with_the_evidence(content: str, verdict: str) -> None:
    """Comments, layout and own names change nothing, for the slow and for the wrong."""
    found = _refused(_solution(content), _solution(CUDA), verdict=verdict)
    assert found.similarity == 1
    assert (found.run, found.round, found.of.name) == ("r1", 3, "old")
    assert ("1.300 [1.200, 1.400]" in found.detail) == (verdict == "pass")


@pytest.mark.parametrize("content", OTHER_CUDA)
@pytest.mark.parametrize("verdict", ["pass", "fail"])
def test_another_probe_is_measured(content: str, verdict: str) -> None:
    """One number, one intrinsic, one operator: that is how kernels are tuned and put right."""
    assert _refused(_solution(content), _solution(CUDA), verdict=verdict) is None


def _long(order: tuple[int, ...]) -> str:
    lines = [f"    float a{i} = __ldg(x + {i}) * {i}.5f + a{max(i - 1, 0)};" for i in order]
    return "void run(const float* x) {\n" + "\n".join(lines) + "\n}\n"


def test_reordered_statements_are_near() -> None:
    """Refused where the old one was surely slower; not where it was wrong or unsure."""
    old, new = _solution(_long(tuple(range(40)))), _solution(_long((1, 0, *range(2, 40))))
    assert 0.9 <= similarity(fingerprint(old), fingerprint(new)) < 1
    assert _refused(new, old).similarity < 1
    assert _refused(new, old, ci=(0.99, 1.4)) is None
    assert _refused(new, old, ci=None) is None
    assert _refused(new, old, verdict="fail") is None


def test_another_setting_of_one_solution_is_another_probe() -> None:
    """Also where the same numbers stand at other knobs: only their order differs in the text."""
    header = "#define KOPT_ROWS {}\n#define KOPT_THREADS {}\n"
    body = "".join(f"__global__ void k{i}(int n) {{ __nanosleep({i}); }}\n" for i in range(40))
    old, new = (_solution(header.format(*values) + body) for values in ((1, 2), (2, 1)))
    memory = _memory(old, family="f", settings={"ROWS": 1, "THREADS": 2})
    get = {old.sha256: old}.__getitem__
    other = {"ROWS": 2, "THREADS": 1}
    assert refusal_of(new, memory, get, family="f", settings=other) is None
    assert refusal_of(new, memory, get) is not None, "of unknown origin it is a rewording"
    assert refusal_of(old, memory, get, family="f", settings=other) is not None, "the same text"


def test_python_keeps_its_blocks_and_loses_its_docstrings() -> None:
    """Indentation is meaning, a docstring is not; builtins are no names of its own."""
    old = _solution(PYTHON, "kernel.py", "python")

    def other(content: str) -> Any:
        return _refused(_solution(content, "kernel.py", "python"), old, verdict="fail")

    assert other(PYTHON.replace('"""Adds one."""', '"""Adds."""  # really')) is not None
    assert other(PYTHON.replace("scale", "factor").replace("index", "i")) is not None
    assert other(PYTHON.replace("min", "max")) is None
    assert other(PYTHON + "    return None\n") is None
    assert other(PYTHON + "        return None\n") is None
    assert other("def run(:\n") is None, "what does not parse is compared as text"


@pytest.mark.parametrize("trial", [{"verdict": "infra"}, {"verdict": "invalid"}, {"passed": True}])
def test_only_what_was_rejected_refuses(trial: dict[str, Any]) -> None:
    """Neither what the machine did, nor what passed the gate and was not promoted."""
    assert _refused(_solution(SAME_CUDA[0]), _solution(CUDA), **trial) is None


def test_a_lost_sweep_is_a_rejection() -> None:
    """Passed at the gate, slower over all workloads."""
    old, new = _solution(CUDA), _solution(SAME_CUDA[0])
    memory = _memory(old, passed=True)
    swept = memory.rounds[0].model_copy(update={"swept": old.sha256})
    assert refusal_of(new, Memory(rounds=(swept,)), {old.sha256: old}.__getitem__) is not None


def test_a_cleaned_archive_refuses_nothing() -> None:
    """What is gone cannot be compared with, and does not stop a round."""

    def gone(sha256: str) -> Solution:
        raise NotFoundError(f"no {sha256}", hint="it was removed")

    assert refusal_of(_solution(CUDA), _memory(_solution(CUDA)), gone) is None


def _drop(toy: Toy, name: str, source: str) -> None:
    folder = toy.root.path / "inbox" / name
    (folder / "solution" / "python").mkdir(parents=True)
    (folder / "solution" / "python" / "kernel.py").write_text(source)
    template = (toy.root.kernels / "toy_op_n/solutions/plain/config.toml").read_text()
    (folder / "config.toml").write_text(template.replace("plain", name))


SLOW = "def run(x, y):\n    for i in range(3):\n        y[:] = x + 1\n"


def test_a_round_refuses_before_it_measures(toy: Toy) -> None:
    """It is recorded with the old evidence, and what comes behind it in the inbox is reached."""
    device = SimulatedDevice(latency_us=lambda s, _: 10.0 if s.name == "plain" else 20.0)
    inbox = {"agent": "inbox", "inbox": str(toy.root.path / "inbox"), "max_candidates": 1}
    _drop(toy, "a", SLOW)
    (first,) = toy.campaign(device, **inbox).execute().rounds
    assert first.decision.label == "reject"
    _drop(toy, "b", SLOW.replace("for i", "for turn") + "# mine\n")
    _drop(toy, "c", SLOW.replace("3", "5"))
    again = toy.campaign(device, **inbox)
    (second,) = again.execute().rounds
    assert [each.name for each in second.refused] == ["b"]
    assert second.refused[0].of.sha256 == first.candidates[0].sha256
    assert [candidate.name for candidate in second.candidates] == ["c"]
    assert any("took 2.0" in note for note in second.notes)
    journal = again.run.journal_path.read_text()
    assert f"gate/{second.refused[0].sha256[:12]}" not in journal
    (third,) = toy.campaign(device, **inbox).execute().rounds
    assert (third.candidates, third.refused) == ((), ()), "it is not even proposed again"


def test_a_person_can_have_it_measured_again(toy: Toy) -> None:
    """After a change of toolchain the old evidence may no longer hold."""
    device = SimulatedDevice(latency_us=lambda s, _: 10.0 if s.name == "plain" else 20.0)
    inbox = {"agent": "inbox", "inbox": str(toy.root.path / "inbox")}
    _drop(toy, "a", SLOW)
    toy.campaign(device, **inbox).execute()
    _drop(toy, "b", SLOW + "# again\n")
    (result,) = toy.campaign(device, **inbox, refuse_duplicates=False).execute().rounds
    assert [candidate.name for candidate in result.candidates] == ["b"]
    assert result.refused == ()


def test_evidence_has_regime_direction_and_technique(toy: Toy) -> None:
    """Each candidate once for each regime of the gate, across runs, with its interval."""
    slow = toy.device._replace(verdicts={"tuned-TILE2": Verdict.FAIL})
    toy.campaign(slow, rounds=4).execute()
    toy.campaign(slow, rounds=3).execute()
    rows = collect(Archive(toy.root.local), "toy_op_n", "cpu")
    assert len({row.run for row in rows}) == 2
    tiling = [row for row in rows if row.technique == "TILE" and row.outcome != "wrong"]
    assert {row.direction for row in tiling} <= {"tiling", "exploration"}
    assert len({row.regime for row in tiling}) > 1
    assert all(row.ci is not None and row.ci[0] <= row.ratio <= row.ci[1] for row in tiling)
    assert any(row.outcome == "faster" for row in tiling)
    wrong = [row for row in rows if row.outcome == "wrong"]
    assert {(row.name, row.ratio, row.regime) for row in wrong} <= {("tuned-TILE2", None, "")}
    assert collect(Archive(toy.root.local), "other") == ()
    pooled = pool(tiling)
    assert sum(each.tried for each in pooled) == len(tiling)
    assert all(each.ci is not None and each.ci[0] <= each.ratio <= each.ci[1] for each in pooled)


def test_the_command_lists_what_was_tried(toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    """Pooled by technique; the single candidates only as JSON."""
    root = ["--root", str(toy.root.path)]
    assert main([*root, "evidence"]) == 0
    assert "kopt round" in capsys.readouterr().out
    toy.campaign(rounds=3).execute()
    assert main([*root, "--json", "evidence", "--definition", "toy", "--target", "cpu"]) == 0
    document = json.loads(capsys.readouterr().out)
    tried = sum(each["tried"] for each in document["techniques"])
    assert tried == len(document["candidates"]) > 0
    assert {"regime", "direction", "technique", "ratio", "ci"} <= set(document["techniques"][0])
    assert main([*root, "evidence", "--direction", "fusion"]) == 0
    assert "fusion" in capsys.readouterr().out
