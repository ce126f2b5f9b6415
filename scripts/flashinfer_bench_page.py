"""The page that scripts/compare_with_flashinfer_bench.py writes out of its results.

Imported by it; running it does nothing.
"""

from __future__ import annotations

from typing import Any

HONEST = "torch-vectorized"
"""The row of an honest solution."""

Row = dict[str, Any]


def render(document: Row) -> str:
    """The page."""
    runs, rows = document["runs"], document["attacks"]
    attacks = [row for row in rows if row["id"] != HONEST]
    let_in = [row for row in attacks if _status(row, "cpu") == "PASSED"]
    plain = [r for r in attacks if _unflagged(r)]
    named = ", ".join(f"`{row['id']}`" for row in plain) or "none"
    return PAGE.format(
        command="python scripts/compare_with_flashinfer_bench.py --python VENV/bin/python",
        runs="\n".join(_run(device, run) for device, run in sorted(runs.items())),
        kopt=document["kopt"],
        outputs="\n".join(_output_row(row) for row in document["outputs"]),
        total=len(attacks),
        let_in=len(let_in),
        plain=named,
        rows="\n".join(_attack_row(row) for row in rows),
    )


def _unflagged(row: Row) -> bool:
    said = row["kopt"] or {"verdict": None, "flags": []}
    return said["verdict"] == "pass" and not said["flags"]


def _run(device: str, run: Row) -> str:
    where = "a CPU" if device == "cpu" else run["device"]
    source = f" (commit {run['commit']})" if run["commit"] else ""
    return (
        f"* {run['date']}, {where}: flashinfer-bench {run['version']}{source}, "
        f"torch {run['torch']}, Python {run['python']}. Called: {run['calls']}."
    )


def _status(row: Row, device: str) -> str:
    found = row["official"].get(device)
    return str(found["status"]) if found else "not run"


def _official(row: Row, device: str) -> str:
    latency_us = row["official"].get(device, {}).get("latency_us")
    timed = f", {latency_us:.2f} µs" if latency_us is not None else ""
    return _cell(_status(row, device)) + timed


def _output_row(row: Row) -> str:
    strict = f"{row['strict']}: `{row['code']}`" if row["code"] else row["strict"]
    official = _cell(row["status"])
    return f"| {row['what']} | `{row['alias']}` | {official} | {row['contest']} | {strict} |"


def _attack_row(row: Row) -> str:
    said = row["kopt"] or {"verdict": "not run", "codes": [], "flags": []}
    verdict = said["verdict"] + "".join(f", `{code}`" for code in said["codes"])
    flags = ", ".join(f"`{flag}`" for flag in said["flags"])
    name = "(an honest solution)" if row["id"] == HONEST else f"`{row['id']}`"
    words = f"| {name} | {_cell(row['description'])} | {_official(row, 'cpu')} "
    return words + f"| {_official(row, 'gpu')} | {_cell(verdict)} | {flags} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


PAGE = """# Against FlashInfer-Bench

The same solutions, on the same definition and workload, under
[FlashInfer-Bench](https://github.com/flashinfer-ai/flashinfer-bench) and under kopt. This page
and `against-flashinfer-bench.json` beside it are written by

    {command}

Runs of FlashInfer-Bench:

{runs}

kopt is version {kopt} of this checkout; its column is `kopt bench` on workload 0.

What FlashInfer-Bench does on a CPU is not all that it does. It times on CUDA devices only, so
nothing was timed; `PASSED` in the CPU column means that the outputs were accepted and that timing
would have come next. Its evaluators wait for a CUDA device after each call, which a CPU build of
PyTorch cannot do: `torch.cuda.synchronize` was replaced by a function that returns. Reference and
solution share one process there, as they do not on a GPU, where a solution has a process of its
own that is lent the expected outputs. Everything else is the package as it is installed.

Every solution ran, on both sides, in namespaces in which only a temporary folder can be written
and no network is reached. That protects the machine and is neither tool's doing. kopt had copies
of the definitions in that folder. kopt's packages could be imported on either side, which
`e11-plants-modules` needs to get as far as its work.

## Wrong outputs

The reference's outputs with one thing wrong (`scripts/wrong_outputs.py`), under the tolerances of
the contest. kopt's contest tier is meant to agree with FlashInfer-Bench, and where the reference is
NaN it abstains; the strict tier decides beside it, and promotion needs both.

| what is wrong | definition | FlashInfer-Bench | contest tier | strict tier |
|---|---|---|---|---|
{outputs}

## Attacks

The solutions of `tests/exploits/solutions/`, but for those on kopt's simulated device. Of
{total}, FlashInfer-Bench accepts the outputs of {let_in} on a CPU. Some go for parts that only one
of the two has, such as kopt's channel between processes; elsewhere they are merely wrong.

kopt passes without a flag: {plain}.
On workload 0 their outputs are right. Some are honest controls, and some are wrong on other
workloads or in the long run, which this page does not ask for; any other is a gap. The test of the
attack in `tests/exploits/` says which.

| attack | what it does | FlashInfer-Bench, CPU | FlashInfer-Bench, GPU | kopt | flags |
|---|---|---|---|---|---|
{rows}
"""
