"""``kopt mcp`` as a client sees it: a real server over stdio, real verdicts on the CPU."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from kopt_controller.budget import BudgetExhaustedError
from kopt_controller.toolserver.allowance import Allowance
from kopt_controller.toolserver.places import Places
from kopt_controller.toolserver.public import public
from kopt_harness.errors import NotFoundError
from kopt_harness.root import Root

mcp = pytest.importorskip("mcp")
anyio = pytest.importorskip("anyio")

DECODE = "gdn_decode_qk4_v8_d128_k_last"
GOOD = f"kernels/{DECODE}/solutions/cpp-recurrent"
ONE = {"workloads": ["0"], "target": "cpu"}


@pytest.fixture
def drafts(tmp_path: Path, checkout: Path) -> Path:
    """A client's folder: a right solution in C++, a wrong one, and one that does not compile."""
    folder = tmp_path / "drafts"
    good = checkout / GOOD
    shutil.copytree(good, folder / "right")
    # In Python, and without a header: neither takes a compiler seconds.
    shutil.copytree(good.with_name("torch-vectorized"), folder / "wrong")
    kernel = folder / "wrong" / "solution" / "python" / "kernel.py"
    kernel.write_text(kernel.read_text() + "    output.mul_(1.25)\n")
    shutil.copytree(good, folder / "broken")
    source = folder / "broken" / "solution" / "cpp" / "gdn_decode.cpp"
    source.write_text("int run() { return nothing; }\n")
    return folder


Talk = Callable[..., Any]


@asynccontextmanager
async def client(root: Path, folder: Path, *options: str) -> AsyncIterator[Any]:
    """A session with a server of its own."""
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    paths = os.pathsep.join(path for path in sys.path if path)
    server = StdioServerParameters(
        command=sys.executable,
        args=[
            "-m",
            "kopt_controller",
            "--root",
            str(root),
            "mcp",
            "--folder",
            str(folder),
            *options,
        ],
        env={"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    with Path(os.devnull).open("w") as nowhere:
        async with (
            stdio_client(server, errlog=nowhere) as (reading, writing),
            ClientSession(reading, writing) as session,
        ):
            await session.initialize()
            yield session


def talk(root: Root, folder: Path, steps: Talk, *options: str) -> Any:
    """Runs ``steps`` with a session."""

    async def run() -> Any:
        async with client(root.path, folder, *options) as session:
            return await steps(session)

    return anyio.run(run)


def _commands(drafts: Path) -> list[psutil.Process]:
    """Commands that judge a solution of the client."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if str(drafts / "right") in (process.info["cmdline"] or ())
    ]


def text_of(result: Any) -> str:
    """What a result says in words."""
    return "\n".join(each.text for each in result.content)


def test_tools_are_listed_with_types(scratch_root: Root, drafts: Path) -> None:
    """A client sees every tool, what it is for, and the types of its arguments."""

    async def steps(session: Any) -> Any:
        return await session.list_tools()

    tools = {tool.name: tool for tool in talk(scratch_root, drafts, steps).tools}
    assert set(tools) == {
        *("bench", "budget", "build", "check", "compare", "definitions"),
        *("diagnose", "gate", "profile", "workloads"),
    }
    assert all(tool.description for tool in tools.values())
    schema = tools["check"].input_schema
    assert schema["required"] == ["solution"]
    assert schema["properties"]["workloads"]["items"]["type"] == "string"
    assert tools["profile"].input_schema["properties"]["profiler"]["enum"] == [
        *("cupti", "ncu", "sass", "torch")
    ]
    assert not any("seed" in tool.input_schema["properties"] for tool in tools.values())


def test_right_and_wrong_solutions_are_told_apart(scratch_root: Root, drafts: Path) -> None:
    """A right C++ solution passes; a wrong one fails without a word of what was expected."""

    async def steps(session: Any) -> Any:
        right = await session.call_tool("check", {"solution": "right", **ONE, "trials": 1})
        wrong = await session.call_tool("check", {"solution": "wrong", **ONE, "trials": 1})
        built = await session.call_tool("build", {"solution": "broken", "target": "cpu"})
        return right, wrong, built

    right, wrong, built = talk(scratch_root, drafts, steps)
    assert not right.is_error
    assert not wrong.is_error
    assert right.structured_content["verdict"] == "pass"
    assert right.structured_content["exit_code"] == 0
    found = wrong.structured_content
    assert (found["verdict"], found["exit_code"]) == ("fail", 1)
    [row] = found["workloads"]
    [first] = [
        each["first_wrong"]
        for each in row["tiers"]["strict"]["outputs"]
        if each["first_wrong"] is not None
    ]
    assert set(first) == {"output", "index", "actual"}
    assert first["actual"] is None
    assert "values (withheld)" in found["reasons"][0]["detail"]
    assert "expected" not in text_of(wrong)
    assert built.structured_content["ok"] is False
    assert "nothing" in built.structured_content["log"]


def test_looking_is_free(scratch_root: Root, drafts: Path, checkout: Path) -> None:
    """Definitions, workloads and somebody else's profile cost nothing, also with no call left."""
    shutil.copy(checkout / "tests" / "harness" / "data" / "ncu_report.txt", drafts)

    async def steps(session: Any) -> Any:
        sizes = await session.call_tool("workloads", {"definition": "gdn_decode"})
        found = await session.call_tool("diagnose", {"report": "ncu_report.txt"})
        return sizes, found

    sizes, found = talk(scratch_root, drafts, steps, "--budget-calls", "0")
    assert len(sizes.structured_content["workloads"]) == 54
    assert found.structured_content["format"] == "ncu-csv"
    assert found.structured_content["signature"]["bottleneck"]


@pytest.mark.slow
def test_measuring_tools_answer_with_numbers(
    scratch_root: Root, drafts: Path, checkout: Path
) -> None:
    """Times, a paired comparison with what ships, and a profile, each charged."""
    other = str((checkout / GOOD).with_name("torch-vectorized"))

    async def steps(session: Any) -> Any:
        bench = await session.call_tool("bench", {"solution": "right", **ONE, "calls": 3})
        gate = await session.call_tool("gate", {"solution": "right", **ONE})
        pair = await session.call_tool("compare", {"a": other, "b": "right", **ONE})
        profile = await session.call_tool(
            "profile", {"solution": other, **ONE, "profiler": "torch"}
        )
        return bench, gate, pair, profile, await session.call_tool("budget", {})

    bench, gate, pair, profile, budget = (
        each.structured_content for each in talk(scratch_root, drafts, steps)
    )
    assert bench["workloads"][0]["median_us"] > 0
    assert "samples_ns" not in bench["workloads"][0]
    assert gate["gate"]["code"] in ("faster", "same", "ambiguous", "slower")
    assert pair["decision"] in ("faster", "slower", "same", "ambiguous")
    assert pair["b"]["name"] == "cpp-recurrent"
    assert profile["profiles"][0]["kernels"]
    assert budget["calls"]["used"] == 4
    assert budget["device_s"]["used"] > 4


def test_bad_arguments_are_errors_with_a_hint(scratch_root: Root, drafts: Path) -> None:
    """What cannot be done is an error of the tool that says what to do, and costs no call."""
    (drafts / "away").symlink_to("/etc")

    async def steps(session: Any) -> Any:
        asked = [
            ("check", {"solution": "absent"}),
            ("check", {"solution": "../../etc"}),
            ("check", {"solution": "away/hostname"}),
            ("check", {"solution": "right", "workloads": ["--seed=1"]}),
            ("check", {"solution": "right", "trials": "many"}),
            ("check", {}),
            ("workloads", {"definition": "gdn_encode"}),
            ("diagnose", {"report": "right/config.toml"}),
            ("nothing", {}),
            ("check", {"solution": "right", "workload": ["0"], "seed": 1}),
            ("budget", {"reset": True}),
        ]
        found = [await session.call_tool(name, arguments) for name, arguments in asked]
        return found, await session.call_tool("budget", {})

    found, budget = talk(scratch_root, drafts, steps, "--budget-calls", "3")
    assert [result.is_error for result in found] == [True] * len(found)
    texts = [text_of(result) for result in found]
    for text in texts[:3]:
        assert "hint: name one in" in text
    assert "'workloads.0' must fit the pattern" in texts[3]
    assert "check: 'trials' must be a whole number, not 'many'" in texts[4]
    assert "check: 'solution' is missing\nhint: arguments are solution, workloads" in texts[5]
    assert "no tool 'nothing'\nhint: tools are bench" in texts[8]
    assert "check has no argument 'seed', 'workload'\nhint: arguments are solution, w" in texts[9]
    assert "budget has no argument 'reset'\nhint: arguments are none" in texts[10]
    assert "pydantic" not in "".join(texts)
    assert "gdn_encode" in texts[6]
    assert "hint:" in texts[6]
    assert "hint:" in texts[7]
    assert budget.structured_content["calls"] == {"limit": 3, "used": 0, "left": 3}


def test_budget_of_calls_is_hard(scratch_root: Root, drafts: Path) -> None:
    """Once its calls are used up nothing is measured any more; looking stays free."""

    async def steps(session: Any) -> Any:
        first = await session.call_tool("build", {"solution": "right", "target": "cpu"})
        second = await session.call_tool("check", {"solution": "right", **ONE})
        return first, second, await session.call_tool("definitions", {})

    first, second, free = talk(scratch_root, drafts, steps, "--budget-calls", "1")
    assert not first.is_error
    assert second.is_error
    assert "all 1 calls are used" in text_of(second)
    assert "gdn_decode" in text_of(free)


def test_budget_of_device_seconds_ends_a_call(scratch_root: Root, drafts: Path) -> None:
    """A measurement that outlasts the device seconds is ended, and none of it is left running."""

    async def steps(session: Any) -> Any:
        first = await session.call_tool("check", {"solution": "right", **ONE})
        left = _commands(drafts)
        second = await session.call_tool("bench", {"solution": "right", **ONE})
        return first, left, second

    first, left, second = talk(scratch_root, drafts, steps, "--budget-device-s", "0.5")
    assert first.is_error
    assert "was ended" in text_of(first)
    assert left == []
    assert second.is_error
    assert "no 'bench'" in text_of(second)


def test_a_call_that_is_cancelled_ends(scratch_root: Root, drafts: Path) -> None:
    """A client that waits no longer leaves no measurement behind; the server goes on."""

    async def steps(session: Any) -> Any:
        with anyio.move_on_after(30) as waiting:
            async with anyio.create_task_group() as group:
                group.start_soon(
                    session.call_tool, "check", {"solution": "right", **ONE, "trials": 1000}
                )
                while not _commands(drafts):
                    await anyio.sleep(0.05)
                waiting.cancel()
        with anyio.fail_after(20):
            while _commands(drafts):
                await anyio.sleep(0.05)
        return await session.call_tool("budget", {})

    budget = talk(scratch_root, drafts, steps)
    assert budget.structured_content["calls"]["used"] == 1


def test_nothing_outlives_a_server_that_is_killed(scratch_root: Root, drafts: Path) -> None:
    """A server that is killed takes the command that it was running along."""
    found: list[psutil.Process] = []

    async def kill(here: psutil.Process) -> None:
        while not (running := _commands(drafts)):
            await anyio.sleep(0.05)
        found.extend(running)
        [server] = [each for each in here.children() if "mcp" in each.cmdline()]
        server.kill()

    async def steps(session: Any) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(kill, psutil.Process())
            with pytest.raises(mcp.MCPError, match=r"[Cc]losed"):
                await session.call_tool("check", {"solution": "right", **ONE})

    talk(scratch_root, drafts, steps)
    _, alive = psutil.wait_procs(found, timeout=10)
    assert found
    assert alive == []


def test_a_refused_call_is_not_counted(tmp_path: Path) -> None:
    """Only admitted calls use a budget up, and a server that is started anew goes on with it."""
    file = tmp_path / "uses"
    with Allowance(file, calls=2).charged("check") as left_s:
        assert left_s is None
    with Allowance(file, calls=2, device_s=60.0).charged("bench") as left_s:
        assert left_s == pytest.approx(60.0, abs=5.0)
    after = Allowance(file, calls=2)
    with pytest.raises(BudgetExhaustedError, match="all 2 calls"), after.charged("build"):
        pytest.fail("it was admitted")
    assert after.document()["calls"] == {"limit": 2, "used": 2, "left": 0}


def test_places_are_only_those_given(tmp_path: Path) -> None:
    """A name leads nowhere else, by dots, links, or a folder whose name begins alike."""
    own, other = tmp_path / "own", tmp_path / "own-not"
    (own / "a").mkdir(parents=True)
    other.mkdir()
    (own / "link").symlink_to(other)
    (own / "ring").symlink_to(own / "ring")
    places = Places([own])
    assert places.find("a") == own / "a"
    assert places.find(str(own / "a")) == own / "a"
    for name in ("../own-not", "link", "ring", str(other), "a/../../own-not", "a\0b", "x" * 5000):
        with pytest.raises(NotFoundError, match="no file"):
            places.find(name)


def test_secrets_are_withheld_wherever_they_stand() -> None:
    """Expected values and seeds go; shapes, indices and what is not finite stay."""
    wrong = {"output": "o", "index": [1], "expected": 0.5, "actual": 0.505}
    shown = public(
        {
            "seed": 7,
            "environment": {"epoch": "e", "boot_id": "b", "rules": {"options": {"seed": 1}}},
            "outputs": [{"first_wrong": wrong}, {"first_wrong": {**wrong, "actual": "nan"}}],
        }
    )
    assert "0.5" not in str(shown)
    assert "7" not in str(shown)
    assert shown["environment"]["epoch"] == "e"
    assert "boot_id" not in shown["environment"]
    assert shown["outputs"][0]["first_wrong"]["actual"] is None
    assert shown["outputs"][1]["first_wrong"]["actual"] == "nan"


@pytest.mark.parametrize(
    ("code", "detail", "shown"),
    [
        (
            "wrong-answer",
            "2 of 8 elements of 'o' are outside; first at [0, 3]: expected 0.5, got 0.505",
            "2 of 8 elements of 'o' are outside; first at [0, 3]: values (withheld)",
        ),
        (
            "non-finite-output",
            "first at [0, 3]: expected -1.5e-3, got nan",
            "first at [0, 3]: got nan",
        ),
        (
            "wrong-scores",
            "row 2: the score of rank 5 is 6.25, the reference's is 1e-05; 1 of 9 ranks are wrong",
            "row 2: the score of rank 5 is (withheld), the reference's is (withheld); "
            "1 of 9 ranks are wrong",
        ),
        (
            "wrong-padding",
            "element [1, 7] is 12, expected 31",
            "element [1, 7] is 12, values (withheld)",
        ),
        ("wrong-of-its-own", "it is -0.25 there", "it is (withheld) there"),
        ("wrong-shape", "shape (2,), expected (3,)", "shape (2,), expected (3,)"),
        ("process-ended", "ended by signal 9 after 1.5 s", "ended by signal 9 after 1.5 s"),
    ],
)
def test_sentences_of_comparators_tell_no_values(code: str, detail: str, shown: str) -> None:
    """However a definition phrases them; sentences that compare nothing stay as they are."""
    document = {"reasons": [{"code": code, "detail": detail}]}
    assert public(document)["reasons"][0]["detail"] == shown
