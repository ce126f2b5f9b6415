"""Runs every attack through FlashInfer-Bench and through kopt, and writes a table of both.

Needs an interpreter with flashinfer-bench (``--python``), which need not be kopt's own:

    python scripts/compare_with_flashinfer_bench.py --python VENV/bin/python

Attacks are hostile, and FlashInfer-Bench runs them without a sandbox. So each attack gets, on
both sides, a process tree of its own in namespaces in which no file can be written outside a
temporary folder and no network is reachable, and is killed when it ends or takes too long.
Where that cannot be had nothing is run. In the temporary folder kopt has copies of the
definitions, which its own defences must protect. What FlashInfer-Bench can do on a machine
without a GPU is said in scripts/flashinfer_bench_worker.py; rows of a GPU and of a CPU are kept
side by side.

Results are merged into docs/against-flashinfer-bench.json: with ``--only`` the other rows
stay, and what FlashInfer-Bench said of an unchanged solution is not asked again without
``--again``. Run it after attacks were added, or with a newer flashinfer-bench.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from flashinfer_bench_page import HONEST, render
from kopt_harness import __version__
from kopt_harness.catalog import Catalog
from kopt_harness.export import definition_document, definition_json
from kopt_harness.pack import pack, solution_json
from kopt_harness.root import Root
from kopt_harness.schema import Definition, Solution

CHECKOUT = Path(__file__).resolve().parents[1]
ATTACKS = CHECKOUT / "tests" / "exploits" / "solutions"
DECODE = CHECKOUT / "kernels" / "gdn_decode_qk4_v8_d128_k_last"
DOCS = CHECKOUT / "docs"
WORKER = Path(__file__).with_name("flashinfer_bench_worker.py")
TIMEOUT_S = 120.0
CONFIG = """
[measure]
trials = 1
pool = 2
bench_calls = 4
blocks_min = 2
blocks_max = 2
call_timeout_s = 20.0
"""
CONFINED = """
set -e
mount --make-rprivate /
mount --bind "$0" "$0"
for target in $(cut -d' ' -f2 /proc/self/mounts); do
    case "$target" in "$0" | /dev* | /proc*) ;;
    *) mount -o remount,bind,ro "$target" 2>/dev/null || true ;; esac
done
if [ -w "$1" ]; then echo "the checkout could be written by an attack" >&2; exit 97; fi
shift
cd "$0"
exec "$@"
"""
"""Shell script of a confined process: its folder, a path to protect, then the command."""

UNPROTECTED = 97
"""Exit code with which that script refuses."""

Row = dict[str, Any]


class Case(NamedTuple):
    """One solution folder."""

    folder: Path
    solution: Solution
    definition: Definition


class Bench(NamedTuple):
    """An installed FlashInfer-Bench and a folder to work in."""

    python: str
    scratch: Path
    catalog: Catalog

    def ask(self, job: str, folder: Path | None = None, **fields: Any) -> Row:
        """Has the worker do one job, confined to ``folder``; says how it ended if it did not."""
        folder = folder or self.scratch
        request, answer = folder / f"{job}.request.json", folder / f"{job}.answer.json"
        answer.unlink(missing_ok=True)
        request.write_text(json.dumps({"job": job, "answer": str(answer), **fields}))
        command = [self.python, "-W", "ignore", str(WORKER), str(request)]
        ended = confined(command, folder)
        if answer.is_file():
            found: Row = json.loads(answer.read_text())
            return found
        return {"status": ended.words(), "last": ended.last()}

    def about(self, commit: str | None) -> Row:
        """Which FlashInfer-Bench this is, and how far it goes here."""
        answer = self.ask("about")
        if "version" not in answer:
            raise SystemExit(f"error: {self.python} has no flashinfer-bench: {answer['last']}")
        return answer | {"commit": commit or answer["commit"]}

    def evaluate(self, case: Case) -> Row:
        """What it says of one solution; each has a data set of its own."""
        name = case.definition.name
        source = self._inputs(case.definition)
        with tempfile.TemporaryDirectory(dir=self.scratch) as made:
            root = Path(made)
            for part in ("definitions", "workloads", "blob"):
                (root / part).mkdir()
                for file in (source / part).iterdir():
                    os.link(file, root / part / file.name)
            (root / "solutions").mkdir()
            (root / "solutions" / "one.json").write_text(solution_json(case.solution))
            tolerance = case.definition.kopt.contest.model_dump()
            fields = {"root": made, "definition": name, "tolerance": tolerance}
            return self.ask("solution", root, **fields)

    def _inputs(self, definition: Definition) -> Path:
        """The data set of a definition's first workload, without solutions."""
        root = self.scratch / f"data-{definition.name}"
        if root.exists():
            return root
        (root / "definitions").mkdir(parents=True)
        text = definition_json(self.catalog, definition)
        (root / "definitions" / f"{definition.name}.json").write_text(text)
        workload = self.catalog.workloads(definition)[0]
        self.ask(
            "prepare",
            root,
            root=str(root),
            definition=definition.name,
            inputs=str(self.catalog.folder(definition) / "inputs.py"),
            uuid=workload.uuid,
            axes=dict(workload.axes),
            bound=definition.bind(workload.axes),
            seed=int.from_bytes(os.urandom(4)),
        )
        return root

    def wrong_outputs(self) -> list[Row]:
        """The table of outputs with one fault."""
        known = self.catalog.definitions()
        answer = self.ask(
            "outputs",
            paths=[str(CHECKOUT / "harness"), str(CHECKOUT / "scripts")],
            definitions={d.name: definition_document(self.catalog, d) for d in known},
            tolerances={d.name: d.kopt.contest.model_dump() for d in known},
        )
        if "rows" not in answer:
            raise SystemExit(f"the outputs were not judged: {answer['last']}")
        rows: list[Row] = answer["rows"]
        return rows


class Ended(NamedTuple):
    """How a confined process ended."""

    code: int | None
    """None: it was killed, because it took too long."""
    out: str
    err: str

    def words(self) -> str:
        """For a table."""
        if self.code is None:
            return "no answer in time"
        if self.code < 0 or self.code > 128:  # a shell adds 128 to the number of a signal
            name = signal.Signals(-self.code if self.code < 0 else self.code - 128).name
            return f"process ended by {name}"
        return f"process ended, exit {self.code}"

    def last(self) -> str:
        """The line that an error ends with."""
        return " ".join(self.err.strip().splitlines()[-1:])


def confined(command: Sequence[str], folder: Path, timeout_s: float = TIMEOUT_S) -> Ended:
    """Runs a command that can write below ``folder`` alone."""
    home, streams = folder / "home", (folder / "out.txt", folder / "err.txt")
    home.mkdir(exist_ok=True)
    names = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "FIB_CACHE_PATH")
    environment = {**os.environ, **dict.fromkeys(names, str(home)), "OMP_NUM_THREADS": "1"}
    unshare = ["unshare", "--mount", "--pid", "--net", "--ipc", "--fork", "--kill-child"]
    unshare += ["--mount-proc"] + (["--map-root-user"] if os.geteuid() else [])
    shell = ["sh", "-c", CONFINED, str(folder), str(CHECKOUT / "pyproject.toml")]
    with streams[0].open("wb") as out, streams[1].open("wb") as err:
        process = subprocess.Popen(
            [*unshare, *shell, *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    ended = Ended(code, *(path.read_text(errors="replace") for path in streams))
    if code == UNPROTECTED:
        raise SystemExit(f"error: {ended.err.strip()}\nhint: run as root, with unshare and mount")
    return ended


def kopt(case: Case, root: Path, target: str | None) -> Row:
    """What ``kopt bench`` says of a solution on the first workload."""
    started = "import sys; from kopt_controller.cli import main; sys.exit(main())"
    words = ["--json", "--root", str(root), "--config", str(root / "small.toml"), "bench"]
    words += [str(case.folder), "--workload", "0", "--trials", "1"]
    words += ["--target", target] if target else []
    ended = confined([sys.executable, "-c", started, *words], root, 5 * TIMEOUT_S)
    try:
        document = json.loads(ended.out)
    except ValueError:
        document = {"verdict": ended.words()}
    timed = [row["median_us"] for row in document.get("workloads", ()) if row.get("median_us")]
    return {
        "exit": ended.code,
        "verdict": document.get("verdict", document.get("error")),
        "codes": [reason["code"] for reason in document.get("reasons", ())],
        "flags": [flag["code"] for flag in document.get("flags", ())],
        "median_us": timed[0] if timed else None,
    }


def scratch_root(parent: Path) -> Path:
    """A root with copies of the project's definitions and a small configuration."""
    root = parent / "root"
    shutil.rmtree(root, ignore_errors=True)  # the last attack may have changed it
    root.mkdir()
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(CHECKOUT / "kernels", root / "kernels", ignore=ignored)
    (root / "small.toml").write_text(CONFIG)
    return root


def find_cases(catalog: Catalog, folder: Path) -> list[Case]:
    """The honest solution and all attacks but those on kopt's simulated device."""
    cases = []
    for path in [DECODE / "solutions" / HONEST, *sorted(p.parent for p in folder.glob("*/*.toml"))]:
        solution, _ = pack(path, known=catalog)
        if "simulated" not in solution.spec.target_hardware:
            cases.append(Case(path, solution, catalog.resolve(solution.definition)))
    return cases


def chosen(cases: Sequence[Case], only: Sequence[str]) -> list[Case]:
    """Those whose names match a pattern; all without one."""
    return [c for c in cases if not only or any(fnmatch.fnmatch(c.folder.name, p) for p in only)]


class Comparison:
    """The two files; every row is written as soon as it is known."""

    def __init__(self, docs: Path) -> None:
        self._path = docs / "against-flashinfer-bench.json"
        recorded = json.loads(self._path.read_text()) if self._path.exists() else {}
        self._runs: Row = recorded.get("runs", {})
        self._rows: Row = {row["id"]: row for row in recorded.get("attacks", ())}
        self._outputs: list[Row] = recorded.get("outputs", [])

    def begin(self, about: Row, present: Collection[str]) -> None:
        """A run of this FlashInfer-Bench; rows of attacks that are gone go as well."""
        today = datetime.now(UTC).date().isoformat()
        self._runs = self._runs | {device_of(about): {**about, "date": today}}
        self._rows = {name: row for name, row in self._rows.items() if name in present}

    def row(self, case: Case) -> Row:
        """What is known of the same bytes."""
        known: Row = self._rows.get(case.folder.name, {})
        new: Row = {
            "id": case.folder.name,
            "definition": case.definition.name,
            "description": case.solution.description,
            "sha256": case.solution.sha256,
        }
        if known.get("sha256") != new["sha256"]:
            return new | {"official": {}, "kopt": None}
        return known | new

    def add(self, row: Row) -> None:
        """A new row, or a better one."""
        self._rows[row["id"]] = row
        self._write()

    def add_outputs(self, rows: list[Row]) -> None:
        """The table of wrong outputs."""
        self._outputs = rows
        self._write()

    def _write(self) -> None:
        document = {
            "schema": 1,
            "kopt": __version__,
            "runs": self._runs,
            "attacks": [self._rows[name] for name in sorted(self._rows)],
            "outputs": self._outputs,
        }
        self._path.write_text(json.dumps(document, indent=1) + "\n")
        self._path.with_suffix(".md").write_text(render(document))


def main() -> None:
    """Asks both and writes both files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="has flashinfer-bench")
    parser.add_argument("--commit", default=None, help="of its source, where it has none recorded")
    parser.add_argument("--attacks", type=Path, default=ATTACKS, help="folder of solutions")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="patterns")
    parser.add_argument("--side", choices=["both", "official", "kopt"], default="both")
    parser.add_argument("--target", default=None, help="of kopt; default: the best one here")
    parser.add_argument("--again", action="store_true", help="ask FlashInfer-Bench again")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where the two files go")
    arguments = parser.parse_args()
    # Ends through the blocks that kill what runs and remove the temporary folder.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    catalog = Catalog(Root(CHECKOUT))
    comparison = Comparison(arguments.docs)
    with tempfile.TemporaryDirectory(prefix="against-") as made:
        bench = Bench(arguments.python, Path(made), catalog)
        about = bench.about(arguments.commit)
        every = find_cases(catalog, arguments.attacks)
        comparison.begin(about, {case.folder.name for case in every})
        cases = chosen(every, arguments.only)
        for number, case in enumerate(cases, 1):
            begun = time.monotonic()
            row = comparison.row(case)
            known = row["official"].get(device_of(about), {})
            if arguments.side != "kopt" and (arguments.again or not _same(known, about)):
                said = bench.evaluate(case)
                found = {k: said[k] for k in ("status", "latency_us") if k in said}
                found |= {k: about[k] for k in ("version", "commit")}
                row["official"] = row["official"] | {device_of(about): found}
            if arguments.side != "official":
                row["kopt"] = kopt(case, scratch_root(Path(made)), arguments.target)
            comparison.add(row)
            took = time.monotonic() - begun
            print(f"{number}/{len(cases)} {case.folder.name} ({took:.1f} s)", file=sys.stderr)
        if arguments.side != "kopt":
            comparison.add_outputs(bench.wrong_outputs())


def device_of(about: Row) -> str:
    """Under which name a run's results are kept."""
    return "cpu" if about["device"] == "cpu" else "gpu"


def _same(known: Row, about: Row) -> bool:
    """Whether what is known was said by this version."""
    return all(known.get(key, "") == about[key] for key in ("version", "commit"))


if __name__ == "__main__":
    main()
