"""``kopt doctor``: what this machine can do, and how to get what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from kopt_harness import __version__

from ._common import LOOK, AppState, emit, examples, note, print_table, state_of

if TYPE_CHECKING:
    from kopt_harness.root import Root
    from rich.console import Console


def register(app: typer.Typer) -> None:
    """Add the command."""
    epilog = examples("kopt doctor", "kopt doctor --json", "kopt doctor --lift-quarantine cpu")
    app.command(rich_help_panel=LOOK, epilog=epilog)(doctor)


def doctor(
    ctx: typer.Context,
    lift_quarantine: Annotated[
        str | None,
        typer.Option(
            metavar="DEVICE",
            help="First give a device back to use that was taken out of it: a GPU UUID, or cpu.",
        ),
    ] = None,
) -> None:
    """Show targets, toolchains, timers, profilers, isolation, agents and disk of this machine."""
    from kopt_harness.doctor import examine

    from ..agents import agent_names

    state = state_of(ctx)
    if lift_quarantine is not None:
        _lift(state, lift_quarantine)
    document = examine(_root(state)).document()
    document["tools"] = [*document["tools"], *(_agent(state, name) for name in agent_names())]
    emit(state, document, lambda console: _print(console, document))


def _agent(state: AppState, name: str) -> dict[str, Any]:
    """Whether an agent could be asked, by the configuration; nothing is sent anywhere."""
    from ..agent_settings import AgentSettings
    from ..agents import get_agent

    status = get_agent(name).status
    if status is None:
        return {"name": name, "kind": "agent", "version": __version__, "ok": True, "hint": ""}
    root = _root(state)
    settings = AgentSettings()
    if root is not None:
        from ..config import load_config

        named = None if state.config is None else str(state.config)
        settings = load_config(root.configs, named, {}).settings_of(name)
    return {"name": name, "kind": "agent", **status(settings)}


def _lift(state: AppState, device: str) -> None:
    from kopt_harness import lease

    lifted = lease.lift_quarantine(device)
    note(state, f"{device} is in use again" if lifted else f"{device} was not out of use")


def _root(state: AppState) -> Root | None:
    """A machine can be examined where no root is found, but a named root must exist."""
    from kopt_harness.errors import NotFoundError

    if state.root_option is not None:
        return state.root
    try:
        return state.root
    except NotFoundError:
        return None


def _print(console: Console, document: dict[str, Any]) -> None:
    rows = [
        (
            target["name"],
            _mark(target["present"]),
            ", ".join(target["languages"]) or "no",
            _mark(target["can_run"]),
            target["device"] or target["reason"],
        )
        for target in document["targets"]
    ]
    print_table(console, ("target", "present", "builds", "runs", "device, or why not"), rows)
    console.print()
    tools = [
        (tool["name"], tool["kind"], _mark(tool["ok"]), _about(tool)) for tool in document["tools"]
    ]
    print_table(console, ("tool", "kind", "ok", "version, or how to get it"), tools)
    console.print()
    isolation = document["isolation"]
    named = [name for name, granted in isolation.get("namespaces", {}).items() if granted]
    console.print(f"namespaces  {', '.join(named) or 'none'}")
    console.print(f"landlock    {_landlock(isolation.get('landlock_abi'))}")
    _print_sandbox(console, isolation.get("sandbox", {}))
    for device in document["quarantine"]:
        console.print(f"out of use  {device['device']}: {device['reason']}")
    disk, platform = document["disk"], document["platform"]
    console.print(f"disk        {disk['free_bytes'] / 1e9:.0f} GB free at {disk['path']}")
    found = f"{platform['root']} ({platform['root_found_by']})" if platform["root"] else "none"
    console.print(f"root        {found}")


def _print_sandbox(console: Console, sandbox: dict[str, Any]) -> None:
    """What a candidate's sandbox consists of here, and whether the probe got out of it."""
    if not sandbox.get("starts"):
        console.print(f"sandbox     does not start: {sandbox.get('reason', 'not on this system')}")
        return
    record, holds = sandbox["record"], sandbox["holds"]
    granted = [name.replace("_", " ") for name, value in record.items() if value is True]
    console.print(f"sandbox     {', '.join(granted)} ({sandbox['start_ms']} ms)")
    for name in (name for name, value in record.items() if value is False):
        console.print(f"without     {name.replace('_', ' ')}: {record.get(f'{name}_reason', '?')}")
    broken = [name for name, value in holds.items() if not value]
    console.print(f"barriers    {', '.join(name for name in holds if holds[name])} hold")
    if broken:
        console.print(f"no barrier  {', '.join(broken)}")


def _about(tool: dict[str, Any]) -> str:
    """The version of what can be used; of the rest what is missing, where that is known."""
    known = [tool["version"]] if tool["ok"] else [tool["hint"], tool["version"]]
    return next((each for each in known if each), "-")


def _landlock(abi: int | None) -> str:
    return "no" if abi is None else f"ABI {abi}"


def _mark(value: bool) -> str:
    return "yes" if value else "no"
