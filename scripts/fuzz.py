"""Feeds damaged and hostile input to everything that reads what somebody else wrote.

Run it before a release, or after a change to a format or to the worker protocol. Each target
takes generated input and must end in one of the ways that are allowed for it: an error of
kopt with exit code 2 or 3, a verdict, a value that can be written again; in time, and never
with another exception. ``tests/harness/test_fuzz_*.py`` run the same targets with fixed seeds.

    python scripts/fuzz.py [MINUTES] [RESULT.json] [TARGET ...]
"""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import os
import socket
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kopt_controller.cli import main as kopt
from kopt_controller.config import load_config
from kopt_harness import files
from kopt_harness.archive import Archive, read_solution
from kopt_harness.build import _process as build_process
from kopt_harness.catalog import Catalog
from kopt_harness.errors import KoptError
from kopt_harness.evaluate import evaluate
from kopt_harness.journal import Journal, read_journal
from kopt_harness.ledger import DictLedger, dumps
from kopt_harness.lint import lint
from kopt_harness.options import MeasureOptions
from kopt_harness.pack import pack, solution_json
from kopt_harness.proc import Ending
from kopt_harness.root import Root
from kopt_harness.schema import BuildSpec, Solution, SourceFile, Verdict, Workload
from kopt_harness.session import Session
from kopt_harness.setting import Setting
from kopt_harness.worker import claims, spawn
from kopt_harness.worker.spawn import WorkerClient, WorkerFailedError
from kopt_harness.worker.wire import MAX_FRAME_BYTES, Channel, WireError

CHECKOUT = Path(__file__).resolve().parents[1]
DECODE = "gdn_decode_qk4_v8_d128_k_last"
SOLUTION = CHECKOUT / "kernels" / DECODE / "solutions" / "cpp-recurrent"
DEADLINE_S = 0.3
"""That a reader of the protocol is given."""
SLACK_S = 5.0
"""What a busy machine may add to it."""

BATCH = 50
"""Inputs of a target in its turn."""
MAX_FAILURE = 4000
"""Characters of a traceback that are kept; its end says most."""

# Half of a surrogate pair can be spelt in JSON, and printed nowhere.
TEXT = st.text(st.characters(exclude_categories=()), max_size=40)
NUMBERS = (
    st.integers()
    | st.floats()
    | st.sampled_from([10**400, -(10**400), 2**63, 2**64, -1, 0, 1e308, True])
)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
DEEP = st.sampled_from(["[", '{"a":', "[[", '{"":[']).flatmap(
    lambda unit: st.sampled_from([10, 990, 5000, 100_000]).map(lambda count: unit * count)
)


@st.composite
def edited(draw: st.DrawFn, original: bytes) -> bytes:
    """A document after some accidents: cut, doubled, overwritten, with rubbish in it."""
    data = original
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 60)))
        piece = draw(
            st.sampled_from([b"", data[start:end] * 2, b"\xff\xfe", b"\0", b"\xed\xa0\x80"])
            | st.binary(max_size=12)
            | JSON.map(lambda value: json.dumps(value).encode())
        )
        data = data[:start] + piece + data[end:]
    return data[: draw(st.integers(0, len(data)))] if draw(st.integers(0, 5)) == 0 else data


@st.composite
def replaced(draw: st.DrawFn, original: Any) -> Any:
    """A JSON value with some of its parts replaced, taken away, added or deeply nested."""
    value = json.loads(json.dumps(original))
    for _ in range(draw(st.integers(1, 3))):
        value = _replace(draw, value)
    return value


def _replace(draw: st.DrawFn, value: Any) -> Any:
    if isinstance(value, dict) and value and draw(st.integers(0, 4)):
        key = draw(st.sampled_from(sorted(value)))
        what = draw(st.integers(0, 4))
        if what == 0:
            return {k: v for k, v in value.items() if k != key}
        if what == 1:
            return value | {draw(TEXT): draw(JSON)}
        return value | {key: _replace(draw, value[key])}
    if isinstance(value, list) and value and draw(st.integers(0, 4)):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], _replace(draw, value[place]), *value[place + draw(st.booleans()) :]]
    return draw(JSON)


def documents(original: Any) -> st.SearchStrategy[bytes]:
    """Files that were once a JSON document."""
    text = json.dumps(original)
    doubled = text[:-1] + ", " + text[1:] if text.startswith("{") else text
    return (
        replaced(original).map(lambda value: json.dumps(value).encode())
        | edited(text.encode())
        | JSON.map(lambda value: json.dumps(value).encode())
        | DEEP.map(str.encode)
        | st.just(doubled.encode())
        | st.binary(max_size=200)
    )


@cache
def scratch() -> Path:
    """A root that every example writes over."""
    folder = Path(tempfile.mkdtemp(prefix="kopt-fuzz-"))
    (folder / "kernels" / DECODE).mkdir(parents=True)
    for name in ("definition.json", "workloads.jsonl", "cost.py"):
        text = (CHECKOUT / "kernels" / DECODE / name).read_text()
        (folder / "kernels" / DECODE / name).write_text(text)
    return folder


def command(*words: object) -> None:
    """A command line must end in 0, 2 or 3 and say one JSON document, without a traceback."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = kopt(["--json", "--root", str(scratch()), *map(str, words)])
    texts = []
    for stream in (out, err):
        stream.seek(0)
        texts.append(stream.read())
    said = "".join(texts)
    assert "Traceback" not in said, said
    assert code in (0, 2, 3), (code, said)
    document = json.loads(texts[0])
    json.dumps(document, ensure_ascii=False).encode()
    assert code == 0 or (document["error"] and "hint" in document), document


def config_toml(data: bytes) -> None:
    """``config.toml`` of a solution: the command line and the function."""
    folder = scratch() / "solution"
    source = folder / "solution" / "python"
    source.mkdir(parents=True, exist_ok=True)
    (source / "kernel.py").write_text("def run(*_): ...\n")
    (folder / "config.toml").write_bytes(data)
    with contextlib.suppress(KoptError):
        solution_json(pack(folder).solution).encode()
    command("pack", folder)


def configs() -> st.SearchStrategy[bytes]:
    """TOML that was once a configuration, and some that never was."""
    names = sorted((CHECKOUT / "kernels").glob("*/solutions/*/config.toml"))
    originals = st.sampled_from(names).map(Path.read_bytes)
    values = JSON.map(lambda value: json.dumps(value, ensure_ascii=False))
    keys = "name definition author language entry_point target_hardware binding source_dir gpu"
    lines = st.lists(
        st.sampled_from(["[solution]", "[build]", "[tunables.X]", "[[build]]", "[benchmark]", ""])
        | st.builds("{} = {}".format, st.sampled_from(keys.split()) | TEXT, values),
        max_size=12,
    ).map(lambda parts: "\n".join(parts).encode("utf-8", "surrogatepass"))
    nested = st.sampled_from([50, 2000, 100_000]).map(lambda n: b"x = " + b"[" * n)
    return originals.flatmap(edited) | lines | nested


def solution_file(data: bytes) -> None:
    """A packed solution in a JSON file."""
    path = scratch() / "solution.json"
    path.write_bytes(data)
    command("unpack", path, scratch() / "unpacked" / str(time.monotonic_ns()))


def journal_lines(data: bytes) -> None:
    """A journal: damage is named, and what is read can be continued."""
    folder = scratch() / "run"
    folder.mkdir(exist_ok=True)
    path = folder / "journal.jsonl"
    path.write_bytes(data)
    try:
        before = read_journal(path)
        with Journal(path) as journal:
            key = f"unit/{len(before)}/{time.monotonic_ns()}"
            journal.put(key, {"n": 1})
        after = read_journal(path)
    except KoptError:
        return
    assert [record.key for record in after] == [*(r.key for r in before), key]


def journals() -> st.SearchStrategy[bytes]:
    """Journals with accidents."""
    lines = []
    for seq in range(3):
        head = {"schema": 1, "seq": seq, "time": "2026-01-01T00:00:00", "key": f"k/{seq}"}
        lines.append(json.dumps(head | {"value": {"x": [seq]}}).encode() + b"\n")
    whole = b"".join(lines)
    one = documents(json.loads(lines[1])).map(lambda line: lines[0] + line + b"\n" + lines[2])
    shuffled = st.permutations(lines).map(b"".join)
    return edited(whole) | one | shuffled | st.binary(max_size=200)


def definition_file(data: bytes) -> None:
    """``definition.json``, and what the command line makes of it."""
    root = Root(scratch() / "other")
    folder = root.kernels / "broken"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "definition.json").write_bytes(data)
    with contextlib.suppress(KoptError):
        for definition in Catalog(root).definitions():
            definition.bind(dict.fromkeys(definition.var_axes, 1))


def workload_lines(data: bytes) -> None:
    """``workloads.jsonl`` of a definition."""
    path = scratch() / "kernels" / DECODE / "workloads.jsonl"
    whole = path.read_bytes()
    try:
        path.write_bytes(data)
        command("workloads", DECODE)
    finally:
        path.write_bytes(whole)


def run_configuration(data: bytes) -> None:
    """A run configuration, as ``--config`` names it."""
    path = scratch() / "run.toml"
    path.write_bytes(data)
    with contextlib.suppress(KoptError):
        load_config(scratch(), str(path), {"measure.trials": 3})


def run_configurations() -> st.SearchStrategy[bytes]:
    """TOML of the right and of wrong types."""
    originals = sorted((CHECKOUT / "configs").glob("*.toml"))
    keys = "agent policy target rounds budget_s search_seed measure.trials measure.seed"
    values = JSON.map(lambda value: json.dumps(value, ensure_ascii=False))
    lines = st.lists(
        st.builds("{} = {}".format, st.sampled_from(keys.split()), values), max_size=6
    ).map(lambda parts: "\n".join(parts).encode("utf-8", "surrogatepass"))
    return st.sampled_from(originals).map(Path.read_bytes).flatmap(edited) | lines


def archived(data: bytes) -> None:
    """A solution of the archive, a manifest of a run."""
    folder = scratch() / "archive"
    archive = Archive(folder)
    path = archive.objects / f"{'ab' * 32}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    run = folder / "runs" / "20260101-000000-x-0000"
    run.mkdir(parents=True, exist_ok=True)
    (run / "manifest.json").write_bytes(data)
    for read in (
        lambda: read_solution(path),
        lambda: archive.get("abababab"),
        archive.runs()[0].manifest,
        lambda: files.read_json(path),
    ):
        with contextlib.suppress(KoptError):
            read()


class _NoProcess:
    """Stands where a worker's process is; it has ended."""

    def wait(self, timeout_s: float) -> bool:
        del timeout_s
        return True

    def end(self) -> Any:
        return Ending(1, ())

    def is_lost(self) -> bool:
        return False


def protocol(stream: bytes) -> None:
    """Everything that a worker can write into its channel, as the orchestrator reads it."""
    ours, theirs = socket.socketpair()
    client = object.__new__(WorkerClient)
    client._channel, client._worker = Channel(ours), _NoProcess()  # type: ignore[assignment]
    client._log, client.module, client.phases_ns = Path(os.devnull), "candidate", {}
    theirs.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        theirs.send(stream)
    theirs.shutdown(socket.SHUT_WR)
    start = time.monotonic()
    failed = None
    try:
        for _ in range(4):
            answer = client.answer(timeout_s=DEADLINE_S)
            for model in (claims.CallClaim, claims.Conduct, claims.ProfileClaim):
                with contextlib.suppress(WireError):
                    claim = claims.read_claim(model, answer)
                    dumps(claim.model_dump(mode="json")).encode()
    except WorkerFailedError as error:
        failed = error
    finally:
        json.dumps(client.phases_ns)
        client._channel.close()
        theirs.close()
    if failed is not None:
        assert failed.kind in ("crash", "timeout", "error", "unavailable", "infra")
        failed.detail.encode()
        assert len(failed.detail) < 30_000, "a reason that a person can read"
    assert time.monotonic() - start < 5 * DEADLINE_S + SLACK_S


def streams() -> st.SearchStrategy[bytes]:
    """Frames: right ones, in the wrong order, of wrong types, cut, oversized, nested, doubled."""
    done = {
        "schema": 1,
        "seq": 0,
        "type": "done",
        "ns": 5,
        "details": {"launches": 1, "kernels": [{"name": "k", "ns": 3, "count": 1}]},
        "phases": {"call": 7},
        "bad_output": None,
        "touched": [],
        "late_writes": [],
    }
    failed = {"schema": 1, "seq": 0, "type": "error", "kind": "infra", "message": "m"}
    fields = ("ns", "details", "phases", "bad_output", "touched", "late_writes", "kind", "message")
    typed = st.builds(
        lambda base, name, value: base | {name: value},
        st.sampled_from([done, failed]),
        st.sampled_from([*fields, "type", "seq", "schema"]),
        JSON,
    )
    bodies = (
        typed.map(lambda document: json.dumps(document).encode())
        | documents(done)
        | documents(failed)
        | DEEP.map(lambda deep: b'{"schema": 1, "seq": 0, "type": "done", "x": ' + deep.encode())
        | st.just(b'{"schema": 1, "seq": 0, "seq": 0, "type": "error", "type": "done"}')
        | st.just(b'{"schema": 1, "seq": 0, "type": "' + b"x" * 50_000 + b'"}')
        | st.just(b'{"schema": 1, "seq": "' + b"9" * 50_000 + b'", "type": "done"}')
        | st.just(b'{"schema": 1, "seq": 0, "type": "done", "ns": ' + b"9" * 5000 + b"}")
    )
    lengths = st.integers(0, 2**32 - 1) | st.sampled_from([0, MAX_FRAME_BYTES, MAX_FRAME_BYTES + 1])
    right = bodies.map(lambda body: struct.pack("<I", len(body)) + body)
    wrong = st.builds(lambda length, body: struct.pack("<I", length) + body, lengths, bodies)
    whole = st.lists(right | wrong, max_size=3).map(b"".join)
    return whole | whole.flatmap(edited) | st.binary(max_size=64)


CANDIDATE = """
import json, socket, struct, sys
from pathlib import Path

channel = socket.socket(fileno=int(sys.argv[2]))
opened = {"schema": 1, "seq": 0, "type": "done", "isolation": {}, "flush_bytes": 0, "phases": {}}
body = json.dumps(opened).encode()
answers = [struct.pack("<I", len(body)) + body]
answers += map(bytes.fromhex, json.loads((Path(__file__).parent / "answers.json").read_text()))
for answer in answers:
    size = struct.unpack("<I", channel.recv(4, socket.MSG_WAITALL))[0]
    channel.recv(size, socket.MSG_WAITALL)
    channel.sendall(answer)
"""
"""A worker that opens like a candidate and then answers with what it is told to."""


class Judged(NamedTuple):
    """A warm judge, and a solution whose process is replaced."""

    setting: Setting
    session: Session
    solution: Solution
    workload: Workload
    folder: Path


@cache
def judged() -> Judged:
    """Opened once; closed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="kopt-fuzz-judge-"))
    (folder / "kernels").symlink_to(CHECKOUT / "kernels")
    (folder / "modules").mkdir()
    (folder / "modules" / "fuzzed_candidate.py").write_text(CANDIDATE)
    options = MeasureOptions(trials=1, call_timeout_s=2.0, load_timeout_s=2.0)
    catalog = Catalog(Root(folder))
    setting = Setting.here(catalog, "cpu", options)
    definition = catalog.resolve(DECODE)
    workload = catalog.workloads(definition)[0]
    spec = BuildSpec(language="python", target_hardware=("cpu",), entry_point="kernel.py::run")
    source = SourceFile(path="kernel.py", content="def run(*_): ...\n")
    solution = Solution(
        name="fuzzed", definition=DECODE, author="fuzz", spec=spec, sources=(source,)
    )
    session = Session(setting, definition, [workload])
    atexit.register(session.close)
    return Judged(setting, session, solution, workload, folder / "modules")


@contextlib.contextmanager
def replaced_candidate(folder: Path) -> Iterator[None]:
    """Candidates that are started meanwhile run the module of that folder."""
    module, path = spawn.MODULES["candidate"], os.environ.get("PYTHONPATH")
    spawn.MODULES["candidate"] = "fuzzed_candidate"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *([path] if path else [])])
    try:
        yield
    finally:
        spawn.MODULES["candidate"] = module
        os.environ.pop("PYTHONPATH")
        if path:
            os.environ["PYTHONPATH"] = path


def candidate(answers: list[bytes]) -> None:
    """A whole check of a process that answers ``load`` and calls with anything."""
    setting, session, solution, workload, folder = judged()
    (folder / "answers.json").write_text(json.dumps([answer.hex() for answer in answers]))
    start = time.monotonic()
    with replaced_candidate(folder):
        try:
            found = evaluate(
                setting, solution, [workload], DictLedger(), session=session, stress_sets=0
            )
        finally:
            session.discard(solution.sha256)
    assert time.monotonic() - start < 60, "no wait beyond the deadlines"
    assert found.verdict != Verdict.PASS, "nothing was computed"
    document = json.dumps(found.document(), ensure_ascii=False)
    document.encode()
    assert all(len(reason.detail) < 30_000 for reason in found.reasons)


def conversations() -> st.SearchStrategy[list[bytes]]:
    """A right answer to ``load`` and something else, or something else at once."""
    loaded = frame({"schema": 1, "seq": 1, "type": "done", "phases": {}})
    called = {"schema": 1, "seq": 2, "type": "done", "ns": None, "phases": {"call": 5}}
    fields = ("ns", "details", "phases", "bad_output", "touched", "late_writes", "type", "seq")
    strange = st.builds(
        lambda name, value: frame(called | {name: value}), st.sampled_from(fields), JSON
    )
    failed = st.sampled_from(["infra", "unavailable", "ValueError", "", None]).map(
        lambda kind: frame({"schema": 1, "seq": 2, "type": "error", "kind": kind, "message": "m"})
    )
    second = strange | failed | streams() | st.just(frame(called))
    return second.map(lambda answer: [loaded, answer]) | streams().map(lambda answer: [answer])


def frame(document: Any) -> bytes:
    """A document as it travels."""
    body = json.dumps(document).encode()
    return struct.pack("<I", len(body)) + body


def builder_answer(data: bytes) -> None:
    """What a builder process leaves in its answer file, which the candidate's code can write."""
    with tempfile.TemporaryFile() as answers:
        answers.write(data)
        answers.flush()
        answer = build_process._read(answers)  # noqa: SLF001
    if answer is not None and answer.failure is not None:
        error = build_process._error(answer.failure)  # noqa: SLF001
        assert isinstance(error, KoptError)


def builder_answers() -> st.SearchStrategy[bytes]:
    """Answers with strange kinds, logs and artefacts."""
    failure = {"failure": {"kind": "UnavailableError", "message": "m", "hint": "h"}}
    outcome = {"outcome": {"ok": True, "log": "l", "artefacts": []}}
    kinds = st.sampled_from(
        ["KoptError", "Exception", "__doc__", "annotations", "__all__", "InterruptedRunError", ""]
    )
    strange = kinds.map(
        lambda kind: json.dumps({"failure": {"kind": kind, "message": "m", "hint": ""}}).encode()
    )
    return documents(failure) | documents(outcome) | strange


PIECES = """import|exec|getattr|setattr|torch|time|os|sys|define|include|lambda|def|class|async
|(|)|[|]|{|}|=|.|+|:|,|;|#|##|<|>|::|->|//|/*|*/|\\|"|'|R"(|)"|f'{|@triton.jit|__global__|cuda
|cudaStreamCreate|ptrace|/proc/self/mem|_channel|id(x)|x.data_ptr()|global n|n += 1|if n > 0
|'a'.join(['b'])|[::-1]|b'x'.decode()"""
WORDS = ["\n", "\t", "\\\n", *PIECES.replace("\n", "").split("|")]


def sources(text: str) -> None:
    """The lint, on anything that can be packed."""
    for path in ("kernel.py", "kernel.cu"):
        spec = BuildSpec(language="python", entry_point=f"{path}::run")
        source = SourceFile(path=path, content=text)
        solution = Solution(name="s", definition="d", author="a", spec=spec, sources=(source,))
        start = time.monotonic()
        report = lint(solution)
        assert time.monotonic() - start < SLACK_S
        json.dumps(report.model_dump(mode="json"), ensure_ascii=False).encode()


def programs() -> st.SearchStrategy[str]:
    """Python and C++ in pieces."""
    words = st.sampled_from(WORDS)
    beside = (CHECKOUT / "kernels").glob("*/solutions/*/solution/*/*")
    honest = sorted(path for path in beside if path.is_file())  # no __pycache__
    pieces = st.lists(words | TEXT, max_size=40).map(" ".join) | st.lists(words, max_size=60).map(
        "".join
    )
    accidents = st.sampled_from(honest).map(Path.read_bytes).flatmap(edited)
    texts = accidents.map(lambda data: data.decode(errors="replace"))
    return (pieces | texts).map(lambda text: text.encode(errors="replace").decode())


@cache
def _packed() -> Any:
    return json.loads(solution_json(pack(SOLUTION).solution))


@cache
def _definition() -> Any:
    return json.loads((CHECKOUT / "kernels" / DECODE / "definition.json").read_text())


def _workloads() -> st.SearchStrategy[bytes]:
    lines = (CHECKOUT / "kernels" / DECODE / "workloads.jsonl").read_bytes().splitlines(True)[:4]
    one = documents(json.loads(lines[0])).map(lambda line: lines[1] + line)
    return edited(b"".join(lines)) | one


TARGETS: dict[str, tuple[Callable[[Any], None], Callable[[], st.SearchStrategy[Any]]]] = {
    "archive": (archived, lambda: documents(_packed())),
    "candidate": (candidate, conversations),
    "builder-answer": (builder_answer, builder_answers),
    "config-toml": (config_toml, configs),
    "definition": (definition_file, lambda: documents(_definition())),
    "journal": (journal_lines, journals),
    "lint": (sources, programs),
    "protocol": (protocol, streams),
    "run-configuration": (run_configuration, run_configurations),
    "solution-json": (solution_file, lambda: documents(_packed())),
    "workloads": (workload_lines, _workloads),
}
"""Property and generator, by name."""


def fuzz(name: str, examples: int, *, fixed: bool) -> int:
    """Runs one target.

    Args:
        name: of ``TARGETS``.
        examples: how many inputs are generated at most.
        fixed: whether the same inputs are generated every time.

    Returns:
        How many inputs were tried.

    Raises:
        BaseException: what the property raised, on the smallest input that was found.
    """
    check, strategy = TARGETS[name]
    tried = 0

    @settings(
        max_examples=examples,
        derandomize=fixed,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(strategy())
    def run(value: Any) -> None:
        nonlocal tried
        tried += 1
        check(value)

    run()
    return tried


def rounds(names: list[str], minutes: float) -> Iterator[tuple[str, int, str]]:
    """Target, number of inputs and failure of each turn, until the time is over."""
    end = time.monotonic() + 60 * minutes
    while True:
        for name in names:
            if time.monotonic() > end:
                return
            try:
                yield name, fuzz(name, BATCH, fixed=False), ""
            except KeyboardInterrupt:
                raise
            except BaseException:  # noqa: BLE001  whatever it is, it is a finding
                yield name, 0, traceback.format_exc()[-MAX_FAILURE:]


def main() -> int:
    """Fuzzes and writes the counts."""
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    place = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    names = sys.argv[3:] or sorted(TARGETS)
    inputs = dict.fromkeys(names, 0)
    failures: dict[str, list[str]] = {}
    for name, tried, failure in rounds(names, minutes):
        inputs[name] += tried
        if failure and len(failures.setdefault(name, [])) < 3:
            failures[name].append(failure)
            print(f"{name}:\n{failure}", file=sys.stderr)
    result = {
        "schema": 1,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": sys.version.split()[0],
        "minutes": minutes,
        "inputs": inputs,
        "failures": failures,
    }
    text = json.dumps(result, indent=1)
    print(text)
    if place is not None:
        place.write_text(text + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
