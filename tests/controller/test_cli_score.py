"""``kopt score``: both numbers, tracks, baselines, errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kopt_controller.cli import main

DECODE = "gdn_decode_qk4_v8_d128_k_last"
KEPT = Path("tests/data/retained") / DECODE / "h200"
"""Evidence that no promotion replaces."""


@pytest.fixture
def score(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Calls ``kopt score --json``; the documents of the exit code."""

    def run(root: Path, *arguments: object) -> tuple[int, dict[str, Any]]:
        code = main(["--root", str(root), "score", *map(str, arguments), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def decode_root(tmp_path: Path, repo_root: Path) -> Path:
    """The project's definitions, and an archive of its own."""
    root = tmp_path / "root"
    root.mkdir()
    for name in ("kernels", "configs"):
        (root / name).symlink_to(repo_root / name)
    return root


def uuids(repo_root: Path) -> list[str]:
    """Workloads of gdn_decode."""
    text = (repo_root / "kernels" / DECODE / "workloads.jsonl").read_text()
    return [json.loads(line)["uuid"] for line in text.splitlines()]


def summary(rows: list[dict[str, Any]], target: str = "h200") -> dict[str, Any]:
    """What a promotion keeps."""
    return {
        "schema": 1,
        "definition": DECODE,
        "target": target,
        "solution": {"name": "ours", "sha256": "ab" * 32},
        "epoch": "e1",
        "workloads": rows,
        "baselines": {},
    }


def rows_of(names: list[str], **change: Any) -> list[dict[str, Any]]:
    """Every other workload takes 1 us against 8 us, the others 4 us against 8 us."""
    return [
        {"uuid": uuid, "median_us": 1.0 if i % 2 else 4.0, "baselines": {"reference": 8.0}} | change
        for i, uuid in enumerate(names)
    ]


def retain(root: Path, document: dict[str, Any]) -> Path:
    """Writes evidence where a promotion does, with the incumbent that the pointer names."""
    place = Path("artifacts") / "retained" / DECODE / document["target"]
    folder = root / place
    folder.mkdir(parents=True)
    incumbent = (root / "kernels").resolve().parent / place / "solution.json"
    if incumbent.is_file():
        (folder / "solution.json").symlink_to(incumbent)
    path = folder / "summary.json"
    path.write_text(json.dumps(document))
    return path


def test_retained_evidence_is_scored_by_default(
    score: Callable[..., Any], decode_root: Path, repo_root: Path
) -> None:
    """Both numbers of the definition, and tracks in which the absent definitions count 0."""
    retain(decode_root, summary(rows_of(uuids(repo_root))))
    code, document = score(decode_root)
    assert (code, document["schema"]) == (0, 1)
    (row,) = document["definitions"]
    assert (row["id"], row["workloads"], row["baseline"]) == (DECODE, 54, "reference")
    assert row["score"] == pytest.approx((8 + 2) / 2)
    assert row["ratio_of_means"] == pytest.approx(8 / 2.5)
    tracks = {track["name"]: track["score"] for track in document["tracks"]}
    assert tracks == {
        "fused_moe": 0,
        "sparse_attention": 0,
        "gated_delta_net": pytest.approx(2.5),
    }


def test_the_table_labels_the_two_numbers(
    decode_root: Path, repo_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody can take one for the other; another incumbent than the evidence's is noted."""
    retain(decode_root, summary(rows_of(uuids(repo_root))))
    assert main(["--root", str(decode_root), "score"]) == 0
    out, err = capsys.readouterr()
    row = next(line for line in out.splitlines() if line.startswith(DECODE))
    assert row.split()[3:6] == ["5", "3.2", "54"]
    assert "official score   ratio of means" in out
    assert "mean over the workloads of baseline / solution" in out
    assert "mean baseline latency / mean solution latency" in out
    assert "the incumbent on h200 is" in err


def test_a_missing_workload_makes_it_0(
    score: Callable[..., Any], decode_root: Path, repo_root: Path
) -> None:
    """And says which; there is no ratio of means of a part."""
    names = uuids(repo_root)
    path = retain(decode_root, summary(rows_of(names[1:])))
    code, document = score(decode_root, path)
    (row,) = document["definitions"]
    assert (code, row["score"], row["ratio_of_means"]) == (0, 0, None)
    assert row["missing"] == [names[0]]


def test_a_baseline_that_is_not_there(
    score: Callable[..., Any], decode_root: Path, repo_root: Path
) -> None:
    """Exit 2, with what there is and how to get it."""
    retain(decode_root, summary(rows_of(uuids(repo_root), baselines={"fla": 9.0})))
    code, document = score(decode_root)
    assert code == 2
    assert "no baseline 'reference'" in document["error"]
    assert "it has fla" in document["hint"]
    assert "kopt sweep" in document["hint"]
    assert score(decode_root, "--baseline", "fla")[0] == 0


def test_the_solution_that_was_replaced_is_a_baseline(
    score: Callable[..., Any], decode_root: Path, repo_root: Path
) -> None:
    """A promotion keeps the paired blocks of both: committed evidence is scored by them."""
    place = Path("artifacts") / "retained" / DECODE / "h200"
    (decode_root / place.parent).mkdir(parents=True)
    (decode_root / place).symlink_to(repo_root / place)
    kept = json.loads((repo_root / place / "summary.json").read_text())
    before = kept["incumbent"]
    code, document = score(decode_root, "--target", "h200", "--baseline", before["name"])
    (row,) = document["definitions"]
    assert (code, row["workloads"], row["failed"], row["missing"]) == (0, 54, [], [])
    means = before["mean_us"] / kept["mean_us"]
    assert row["ratio_of_means"] == pytest.approx(means, rel=1e-6)
    assert row["score"] > 1, "each size weighs as much as the others here"


def test_the_hint_is_a_command_for_that_evidence(
    score: Callable[..., Any], decode_root: Path, repo_root: Path
) -> None:
    """With the packed solution beside it, the target, and what the evidence does have."""
    place = Path("artifacts") / "retained" / DECODE / "h200"
    (decode_root / place.parent).mkdir(parents=True)
    (decode_root / place).symlink_to(repo_root / KEPT)
    code, document = score(decode_root, "--target", "h200")
    assert code == 2
    packed = decode_root / place / "solution.json"
    assert packed.is_file()
    assert document["hint"] == (
        f"it has torch-vectorized; measure it with: kopt sweep {packed} --target h200 "
        "--baseline reference --out-dir results, then: kopt score results --baseline reference"
    )


def test_a_definition_without_the_baseline_does_not_hide_the_others(
    score: Callable[..., Any], decode_root: Path, repo_root: Path, tmp_path: Path
) -> None:
    """It is named with what to do; its track counts it as absent, and says so."""
    prefill = "gdn_prefill_qk4_v8_d128_k_last"
    lacking = summary([{"uuid": "a", "median_us": 1.0, "baselines": {}}])
    results = tmp_path / "results"
    results.mkdir()
    (results / "decode.json").write_text(json.dumps(summary(rows_of(uuids(repo_root)))))
    (results / "prefill.json").write_text(json.dumps(lacking | {"definition": prefill}))
    code, document = score(decode_root, results)
    assert (code, [row["id"] for row in document["definitions"]]) == (0, [DECODE])
    (unscored,) = document["unscored"]
    assert (unscored["id"], unscored["file"]) == (prefill, str(results / "prefill.json"))
    assert "kopt sweep DIR --target h200 --baseline reference" in unscored["hint"]
    track = next(t for t in document["tracks"] if t["name"] == "gated_delta_net")
    assert (track["score"], track["absent"]) == (pytest.approx(2.5), [prefill])


def test_evidence_of_two_targets(
    score: Callable[..., Any], decode_root: Path, repo_root: Path
) -> None:
    """One must be chosen."""
    for target in ("h200", "b200"):
        retain(decode_root, summary(rows_of(uuids(repo_root)), target))
    code, document = score(decode_root)
    assert code == 2
    assert "b200, h200" in document["error"]
    code, document = score(decode_root, "--target", "b200")
    assert (code, document["definitions"][0]["target"]) == (0, "b200")


def test_no_evidence(score: Callable[..., Any], decode_root: Path, tmp_path: Path) -> None:
    """Nothing retained, a path that is not there, a file with nothing in it."""
    assert score(decode_root)[0] == 2
    assert score(decode_root, tmp_path / "nowhere")[0] == 2
    (tmp_path / "x.json").write_text('{"a": 1}')
    assert score(decode_root, tmp_path / "x.json")[0] == 2


def test_foreign_results_are_scored_and_marked(
    score: Callable[..., Any], decode_root: Path, repo_root: Path, tmp_path: Path
) -> None:
    """By their own reference; a failed workload makes them 0 as well."""
    entries = {
        uuid: {"status": "PASSED", "latency_ms": 0.5, "reference_latency_ms": 2.0}
        for uuid in uuids(repo_root)
    }
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"results": {DECODE: entries}}))
    code, document = score(decode_root, path)
    (row,) = document["definitions"]
    assert (code, row["score"], row["foreign"]) == (0, pytest.approx(4), True)
    first = next(iter(entries))
    entries[first] = {"status": "INCORRECT_NUMERICAL"}
    path.write_text(json.dumps({"results": {DECODE: entries}}))
    (row,) = score(decode_root, path)[1]["definitions"]
    assert (row["score"], row["failed"]) == (0, [first])
