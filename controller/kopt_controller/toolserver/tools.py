"""The tools: what a client may ask, typed, and the command that answers it.

Descriptions of tools and arguments are what a model reads before it calls one.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from kopt_harness.errors import KoptError
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field, StringConstraints, ValidationError

from ..faults import all_faults
from .places import Places
from .running import Commands

__all__ = ["TOOLS", "Tools", "build_server"]

TOOLS = (
    "bench",
    "budget",
    "build",
    "check",
    "compare",
    "definitions",
    "diagnose",
    "gate",
    "profile",
    "workloads",
)

_INSTRUCTIONS = """\
kopt judges kernels: it builds, checks and times solutions, and nothing that a solution or its
author says of itself counts. Work in this order: build, check on the representative workloads,
gate or compare against what is to be beaten, profile to see what limits it, then change one thing.
A verdict other than pass is a result, not an error of the tool. budget says what may still be
measured; calls that measure are made one after the other."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
SolutionName = Annotated[
    Name, Field(description="Solution folder (with config.toml) or solution JSON.")
]
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$")]
Selectors = Annotated[
    tuple[Word, ...],
    Field(
        min_length=1,
        max_length=500,
        description="Workloads: uuid, index, rep (representatives) or all.",
    ),
]
TargetName = Annotated[
    Word | None, Field(description="cpu, h200, b200, ...; null: the best one of this machine.")
]
Trials = Annotated[
    int | None, Field(ge=1, le=1000, description="Distinct input sets per workload; null: 3.")
]
Calls = Annotated[
    int | None, Field(ge=1, le=10000, description="Timed calls per workload; null: 20.")
]
Profiler = Annotated[
    Literal["cupti", "ncu", "sass", "torch"],
    Field(description="torch and sass work everywhere; cupti and ncu need a GPU."),
]
_REP = ("rep",)


class Tools:
    """Each public method is a tool."""

    def __init__(self, commands: Commands, places: Places) -> None:
        self._commands = commands
        self._places = places

    async def check(
        self,
        solution: SolutionName,
        workloads: Selectors = _REP,
        target: TargetName = None,
        trials: Trials = None,
    ) -> dict[str, Any]:
        """Is a solution right? Checks it on secret inputs; names the first wrong element.

        verdict is pass, fail (wrong), reject (not allowed), crash, timeout, invalid or infra.
        """
        options = _options(workload=workloads, target=target, trials=trials)
        return await self._measure("check", options, solution)

    async def bench(
        self,
        solution: SolutionName,
        workloads: Selectors = _REP,
        target: TargetName = None,
        calls: Calls = None,
    ) -> dict[str, Any]:
        """How long does a solution take? Every timed call is checked.

        median_us of each workload. To tell which of two is faster use compare instead: two
        benches are taken at different times and say little about a small difference.
        """
        options = _options(workload=workloads, target=target, calls=calls)
        return await self._measure("bench", options, solution)

    async def gate(
        self, solution: SolutionName, workloads: Selectors = _REP, target: TargetName = None
    ) -> dict[str, Any]:
        """Is a solution right, and not slower than the incumbent? Both, on representatives.

        passed and gate say the outcome; comparison has the ratio of times to the incumbent's,
        below 1 where the solution is faster.
        """
        options = _options(workload=workloads, target=target)
        return await self._measure("gate", options, solution)

    async def compare(
        self,
        a: SolutionName,
        b: SolutionName,
        workloads: Selectors = _REP,
        target: TargetName = None,
    ) -> dict[str, Any]:
        """Is B faster than A? Paired blocks (A B B A), with an interval.

        decision is faster, slower, same or ambiguous, and is about B; ratio is the time
        of B over that of A.
        """
        options = _options(workload=workloads, target=target)
        return await self._measure("compare", options, a, b)

    async def profile(
        self,
        solution: SolutionName,
        profiler: Profiler = "torch",
        workloads: Annotated[
            tuple[Word, ...], Field(max_length=8, description="Empty: one of middle cost.")
        ] = (),
        target: TargetName = None,
    ) -> dict[str, Any]:
        """What is a solution's time made of, or (sass) the machine code it compiles to?

        Times under a profiler are no measurement; their shares are. sass compiles for a target
        that need not be here and shows registers, spills, shared memory and opcodes.
        """
        options = _options(workload=workloads, target=target, profiler=[profiler])
        return await self._measure("profile", options, solution)

    async def build(self, solution: SolutionName, target: TargetName = None) -> dict[str, Any]:
        """Does a solution compile, also for hardware that is not here? Shows the compiler's log."""
        with _told():
            path = str(self._places.find(solution))
            return await self._commands.spend("build", *_options(target=target), "--", path)

    async def diagnose(
        self,
        report: Annotated[
            Name,
            Field(description="ncu text, CSV or .ncu-rep; table or trace of torch.profiler."),
        ],
    ) -> dict[str, Any]:
        """What limits the kernels of a profile taken elsewhere, and which numbers say so?"""
        with _told():
            return await self._commands.look("diagnose", "--", str(self._places.find(report)))

    async def definitions(self) -> dict[str, Any]:
        """Which operators are there? Alias, id, type and solutions of each."""
        with _told():
            return await self._commands.look("definitions")

    async def workloads(
        self, definition: Annotated[Word, Field(description="Alias or id of a definition.")]
    ) -> dict[str, Any]:
        """Which sizes does an operator have? With the regime and least work of each."""
        with _told():
            return await self._commands.look("workloads", "--", definition)

    async def budget(self) -> dict[str, Any]:
        """What is left of the calls, and of the seconds that they take? Costs nothing."""
        return self._commands.allowance.document()

    async def _measure(self, command: str, options: list[str], *names: str) -> dict[str, Any]:
        with _told():
            paths = [str(self._places.find(name)) for name in names]
            return await self._commands.spend(command, *options, "--", *paths)


class _Server(MCPServer[Any]):
    """Says what is wrong with a call in the words of kopt, not in those of the validation."""

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        """The result of a tool; what cannot be called is an error with a hint."""
        tools = {tool.name: tool for tool in await self.list_tools()}
        if name not in tools:
            raise ToolError(f"no tool {name!r}\nhint: tools are {', '.join(tools)}")
        properties = tools[name].input_schema.get("properties", {})
        hint = f"hint: arguments are {', '.join(properties) or 'none'}"
        # The package drops what a tool has no parameter for; it would run with other ones.
        if unknown := sorted(arguments.keys() - properties.keys()):
            raise ToolError(f"{name} has no argument {', '.join(map(repr, unknown))}\n{hint}")
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            raise ToolError(f"{name}: {all_faults(error.__cause__)}\n{hint}") from error


def build_server(tools: Tools, version: str) -> MCPServer[Any]:
    """The server, ready to run.

    Args:
        tools: Whose methods it serves.
        version: That it says of itself.
    """
    server = _Server("kopt", instructions=_INSTRUCTIONS, version=version, log_level="WARNING")
    for name in TOOLS:
        method = getattr(tools, name)
        server.add_tool(method, name=name, description=inspect.getdoc(method))
    return server


class _told:  # noqa: N801 - reads as a clause of a with statement
    """Hands an error of kopt to the client, with its hint."""

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: Any) -> None:
        """Raises what the protocol knows as an error of a tool."""
        if isinstance(error, KoptError):
            hint = f"\nhint: {error.hint}" if error.hint else ""
            raise ToolError(f"{error.message}{hint}") from error


def _options(**values: Sequence[str] | str | int | None) -> list[str]:
    """Options of a command line; each value is bound to its name by a sign."""
    words: list[str] = []
    for name, value in values.items():
        several = value if isinstance(value, list | tuple) else [value]
        words += [f"--{name}={each}" for each in several if each is not None]
    return words
