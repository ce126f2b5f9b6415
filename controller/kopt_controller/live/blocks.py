"""A board as lines and a table, for a terminal: what ``kopt status --watch`` shows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from ..report import Block, Table
from ..shown import counted, ratio_text
from .board import Board

__all__ = ["live_blocks", "summary_line"]

STAGES = ("state", "candidates", "gate", "sweep", "validation")
MOST_CANDIDATES = 8
"""The latest; a screen has no more room beside the rest."""
BAR_WIDTH = 30


def live_blocks(board: Board) -> tuple[Block, ...]:
    """What is going on, for one screen of 80 columns."""
    run = board.get("run")
    return (
        f"Run {run['run']}: {run['state']}, {_closed(board)}, {_age(run)}",
        f"{run['definition']} on {run['target']}, agent {run['agent']}, "
        f"{counted(run['evaluations'], 'evaluation')}{_verdicts(run)}",
        *((f"Problem: {run['problem']}",) if run["problem"] else ()),
        "",
        _steps(board),
        summary_line(board),
        *_bar(board),
        *_direction(board),
        *_workers(board),
        "",
        *_candidates(board),
        _best(board),
    )


def summary_line(board: Board) -> str:
    """What is being done, in one line: for whoever keeps a log of it."""
    now, latest = board.get("now"), _latest_round(board)
    if latest is None:
        return "No round has begun yet"
    if (decision := latest["decision"]) is not None:
        return f"Round {latest['round']}: {decision['label']}, {decision['reason']}"
    head = f"Round {latest['round']}, {now.get('stage', 'state')}"
    if now.get("name") is None:
        return head
    done, of = now["checked"], now["workloads"]
    checked = counted(done, "workload") if of is None else f"{done} of {counted(of, 'workload')}"
    return (
        f"{head} of {now['name']}: {checked} checked, {now['timed']} timed, "
        f"{counted(now['blocks'], 'block')}"
    )


def _latest_round(board: Board) -> dict[str, Any] | None:
    return max(board.named("round/"), key=lambda each: int(each["round"]), default=None)


def _closed(board: Board) -> str:
    closed = sum(each["decision"] is not None for each in board.named("round/"))
    return f"{closed} of {board.get('run')['rounds_planned']} rounds closed"


def _age(run: Mapping[str, Any]) -> str:
    ends = run["state"] != "running" and run["last"] is not None
    end = datetime.fromisoformat(run["last"]["time"]) if ends else datetime.now(UTC)
    return _duration((end - datetime.fromisoformat(run["created"])).total_seconds())


def _duration(seconds: float) -> str:
    whole = max(0, round(seconds))
    return f"{whole} s" if whole < 100 else f"{whole // 60} min {whole % 60} s"


def _verdicts(run: Mapping[str, Any]) -> str:
    counts = ", ".join(f"{count} {verdict}" for verdict, count in run["verdicts"].items())
    return f" ({counts})" if counts else ""


def _steps(board: Board) -> str:
    """The stages of a round, the one that is under way in brackets."""
    latest, stage = _latest_round(board), board.get("now").get("stage")
    if latest is None:
        return ""
    over = latest["decision"] is not None
    names = [f"[{each}]" if each == stage and not over else each for each in STAGES]
    return " > ".join([*names, "[decision]" if over else "decision"])


def _bar(board: Board) -> Iterator[str]:
    now, latest = board.get("now"), _latest_round(board)
    is_open = latest is not None and latest["decision"] is None
    if not is_open or board.get("run")["state"] != "running" or not now.get("workloads"):
        return
    share = min(1.0, (now["checked"] + now["timed"]) / (2 * now["workloads"]))
    done = round(share * BAR_WIDTH)
    yield f"{'#' * done}{'-' * (BAR_WIDTH - done)} {share:.0%} of this stage"


def _direction(board: Board) -> Iterator[str]:
    latest = _latest_round(board)
    if latest is not None and latest.get("direction"):
        because = f", because {latest['because']}" if latest.get("because") else ""
        yield f"Direction: {latest['direction']}{because}"


def _workers(board: Board) -> Iterator[str]:
    for each in board.get("work").get("workers", ()):
        since = _duration(time.time() - each["since"])
        yield f"{each['worker']}: {each['doing'] or 'idle'} ({since})"


def _candidates(board: Board) -> Iterator[Block]:
    found = list(board.named("candidate/"))
    if not found:
        yield "No candidates yet"
        return
    rows = tuple(_row(each) for each in found[-MOST_CANDIDATES:])
    yield Table(("round", "candidate", "verdict", "gate", "time / incumbent"), rows, ("round",))
    if len(found) > MOST_CANDIDATES:
        yield f"and {len(found) - MOST_CANDIDATES} before: kopt history lists the rounds"


def _row(each: Mapping[str, Any]) -> tuple[object, ...]:
    gate = {None: each["stage"], True: "passed", False: "not passed"}[each["passed"]]
    return each["round"], each["name"], each["verdict"], gate, _ratio(each)


def _ratio(each: Mapping[str, Any]) -> str | None:
    if each["ratio"] is None:
        return None
    return f"{ratio_text(each['ratio'], each['ci'])} {each['basis']}"


def _best(board: Board) -> str:
    """Of those whose interval lies below 1: a low ratio alone may be noise."""
    found = [each for each in board.named("candidate/") if each["passed"] and each["faster"]]
    if not found:
        return "Best so far: none is faster than its incumbent beyond its interval"
    best = min(found, key=lambda each: float(each["relative"]))
    return (
        f"Best so far: {best['name']} of round {best['round']}, {best['relative']:.3f} of the time "
        "of the first incumbent"
    )
