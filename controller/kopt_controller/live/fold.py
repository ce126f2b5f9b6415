"""Records of a campaign's journal, folded one after the other into a board.

Names on the board: ``round/<n>``, ``candidate/<n>/<solution>``, ``pair/<n>/<stage>/<solution>``,
``profile/<solution>/<workload>``. The keys of the journal are described in ``loop.py``; one that
is not known is passed over, so that a record of a newer part of the loop does no harm.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kopt_harness.journal import JournalRecord

from ..memory import parse_round
from ..state import Signature
from .board import Board
from .evaluations import Evaluated, EvaluationTable
from .pairs import Pair

__all__ = ["Fold", "Setup"]

_ROUND = re.compile(r"r(\d+)")
_STAGES = ("gate", "sweep", "validation")
_OLD_POINTS = 24
"""Of the history of a comparison that ended a while ago: hundreds of them are sent at once."""
_REPLAYED = 6
"""Ended comparisons, the latest, whose samples are kept: of a run that was there before anybody
looked they get a history all the same."""


class Setup(NamedTuple):
    """What a run was started with, as far as it is needed here."""

    incumbent: str
    """Name of the first one."""
    incumbent_sha256: str
    confidence: float
    sweep_workloads: int | None
    """Null where nobody knows."""
    rounds: bool
    """Whether blocks are taken in rounds of fresh processes."""


class Fold:
    """Takes records; the board has what they come to."""

    def __init__(self, board: Board, setup: Setup) -> None:
        self.board = board
        self.table = EvaluationTable()
        self.finished = False
        self._setup = setup
        self._names = {setup.incumbent_sha256[:12]: setup.incumbent}
        self._pairs: dict[str, Pair] = {}
        self._ended: deque[str] = deque()
        """Comparisons that have ended and whose samples are still here."""
        self._now: dict[str, Any] = {}
        self._profiled: Counter[str] = Counter()
        self._checked: Counter[tuple[int, str]] = Counter()
        self._touched: dict[tuple[int, str], str] = {}
        """Stage of the candidates that were measured since the last look."""
        self._level = 1.0
        """Time of the incumbent, of that of the first one."""

    def take(self, record: JournalRecord) -> None:
        """One record."""
        head, *rest = record.key.split("/")
        if (found := _ROUND.fullmatch(head)) is not None:
            self._of_round(int(found.group(1)), rest, record)
        elif head == "profile" and len(rest) == 2:
            self._profile(rest[0], rest[1], record.value)
        elif head == "session":
            environment = record.value["environment"]
            names = ("device", "epoch", "driver", "python", "kopt")
            self.board.put("environment", {name: environment.get(name) for name in names})
        elif head == "finished":
            self.finished = True

    def look(self, *, all_at_once: bool = False) -> None:
        """Takes the intervals of the comparisons that have new blocks.

        Args:
            all_at_once: The blocks are those of a run that was there before anybody looked: the
                latest comparisons get the history that they would have been seen with.
        """
        self._settle()
        for name in [name for name, pair in self._pairs.items() if pair.is_new]:
            pair = self._pairs[name]
            if all_at_once:
                pair.replay()
            if all_at_once or pair.look():
                self._show_pair(name)

    def _of_round(self, number: int, rest: Sequence[str], record: JournalRecord) -> None:
        value = record.value
        name = f"round/{number}"
        if not self.board.get(name):
            self.board.put(name, {"round": number, "began": record.time, "decision": None})
        match rest:
            case ["steer"]:
                self.board.update(name, steers=len(value["steers"]))
                self._enter(number, "state", None)
            case ["proposals", direction]:
                self._proposals(number, direction, value)
            case ["result"]:
                self._result(number, value, record.time)
            case [stage, solution, "outcome"] if stage in _STAGES:
                self._outcome(number, stage, solution, value)
            case [stage, solution, _, *unit] if stage in _STAGES:
                self._unit(number, stage, solution, unit, record)

    def _enter(self, number: int, stage: str, solution: str | None) -> None:
        """What is being done; counts begin anew with each stage of each candidate."""
        now = self._now
        if (now.get("round"), now.get("stage"), now.get("sha256")) == (number, stage, solution):
            return
        representatives = max(self._profiled.values(), default=None)
        total = self._setup.sweep_workloads if stage == "sweep" else representatives
        self._now = {
            "round": number,
            "stage": stage,
            "sha256": solution,
            "name": None if solution is None else self._names.get(solution, solution),
            "checked": 0,
            "timed": 0,
            "blocks": 0,
            "workloads": total if stage in _STAGES else None,
        }

    def _settle(self) -> None:
        """Puts on the board what was counted: once a look, not once a record."""
        if self._now:
            self.board.put("now", self._now)
        for (number, solution), stage in self._touched.items():
            checked = self._checked[number, solution]
            self._candidate(number, solution, stage=stage, checked=checked)
        self._touched.clear()

    def _profile(self, solution: str, uuid: str, value: Mapping[str, Any]) -> None:
        self._profiled[solution] += 1
        kernels = sorted(value["kernels"], key=lambda each: -each["total_us"])
        diagnosis = value.get("diagnosis") or {}
        self.board.put(
            f"profile/{solution}/{uuid}",
            {
                "solution": self._names.get(solution, solution),
                "sha256": solution,
                "axes": axes_text(value["axes"]),
                "total_us": value["total_us"],
                "launches": value["launches"],
                "dominant": kernels[0]["name"] if kernels else None,
                "bottleneck": diagnosis.get("bottleneck"),
            },
        )

    def _proposals(self, number: int, direction: str, value: Mapping[str, Any]) -> None:
        proposed = value["candidates"]
        # An agent that has nothing for a direction is asked for the next one.
        if not proposed:
            return
        self.board.update(f"round/{number}", direction=direction)
        self._enter(number, "candidates", None)
        for each in proposed:
            short = each["sha256"][:12]
            self._names[short] = each["name"]
            self._candidate(
                number,
                short,
                name=each["name"],
                sha256=each["sha256"],
                direction=direction,
                what=each.get("rationale", ""),
            )

    def _candidate(self, number: int, solution: str, **fields: Any) -> None:
        """Changes what is known of a candidate; it begins with nothing."""
        name = f"candidate/{number}/{solution}"
        known = self.board.get(name) or {
            "round": number,
            "name": self._names.get(solution, solution),
            "sha256": solution,
            "direction": "",
            "what": "",
            "stage": "proposed",
            "checked": 0,
            "verdict": None,
            "passed": None,
            "ratio": None,
            "ci": None,
            "basis": None,
            "flags": [],
            "reason": "",
            "relative": None,
            "relative_ci": None,
            "faster": False,
            "promoted": False,
        }
        self.board.put(name, {**known, **fields})

    def _unit(
        self, number: int, stage: str, solution: str, unit: Sequence[str], record: JournalRecord
    ) -> None:
        self._enter(number, stage, solution)
        match unit:
            case ["check", sha256, uuid, *_]:
                self.table.add(self._evaluated(number, stage, (sha256, uuid), record))
                self._checked[number, solution] += 1
                self._touched[number, solution] = f"{stage}: check"
                self._now["checked"] += 1
            case ["block", names, uuid, _] if "a_ns" in record.value:
                self._touched[number, solution] = f"{stage}: timing"
                pair = self._pair(number, stage, solution, names)
                pair.add(uuid, record.value["a_ns"], record.value["b_ns"])
                self._now |= {"timed": pair.workloads, "blocks": pair.blocks}

    def _evaluated(
        self, number: int, stage: str, what: tuple[str, str], record: JournalRecord
    ) -> Evaluated:
        sha256, uuid = what
        value = record.value
        return Evaluated(
            number=0,
            time=record.time,
            round=number,
            stage=stage,
            candidate=self._names.get(sha256[:12], sha256),
            sha256=sha256[:12],
            uuid=uuid,
            axes=axes_text(value.get("axes", {})),
            verdict=str(value.get("verdict")),
            phase=str(value.get("phase", "check")),
            trials=value.get("trials"),
            median_us=(value.get("timing") or {}).get("median_us"),
        )

    def _pair(self, number: int, stage: str, solution: str, names: str) -> Pair:
        name = f"pair/{number}/{stage}/{solution}"
        if name not in self._pairs:
            self._pairs[name] = Pair(self._setup.confidence, rounds=self._setup.rounds)
            a, _, b = names.partition("-")
            head = {
                "round": number,
                "stage": stage,
                "a": self._names.get(a, a),
                "b": self._names.get(b, b),
                "final": None,
            }
            self.board.put(name, head | self._pairs[name].document())
        return self._pairs[name]

    def _show_pair(self, name: str) -> None:
        document = self._pairs[name].document()
        self.board.update(name, **document)
        last = document["history"][-1] if document["history"] else None
        _, number, stage, solution = name.split("/")
        # A validation repeats what the sweep has found; it does not take its place.
        is_open = self.board.get(name)["final"] is None and stage != "validation"
        if last is not None and is_open:
            self._candidate(int(number), solution, ratio=last[1], ci=last[2:], basis="interim")

    def _outcome(self, number: int, stage: str, solution: str, value: Mapping[str, Any]) -> None:
        self._settle()
        judged = value["gate"] if stage == "validation" else value
        candidate = self.board.get(f"candidate/{number}/{solution}")
        fields: dict[str, Any] = {"stage": f"{stage}: done"}
        if judged is not None:
            evaluation = judged["evaluation"]
            self._times(number, stage, solution, evaluation)
            fields["flags"] = _flags(candidate, evaluation)
            if stage == "gate":
                fields |= {"passed": judged["passed"], "reason": judged["reason"]["detail"]}
            if stage != "validation":
                fields["verdict"] = evaluation["verdict"]
                fields |= self._compared(judged["comparison"], stage)
            self._final(f"pair/{number}/{stage}/{solution}", judged["comparison"])
        self._candidate(number, solution, **fields)

    def _times(self, number: int, stage: str, solution: str, evaluation: Mapping[str, Any]) -> None:
        for each in evaluation["workloads"]:
            median_us = (each.get("timing") or {}).get("median_us")
            if median_us is not None:
                self.table.timed(number, stage, solution[:12], each["uuid"], median_us)

    def _compared(self, comparison: Mapping[str, Any] | None, stage: str) -> dict[str, Any]:
        if comparison is None or comparison["ratio"] is None:
            return {}
        ratio, ci = comparison["ratio"], comparison["ci"]
        return {
            "ratio": ratio,
            "ci": ci,
            "basis": stage,
            "relative": self._level * ratio,
            "relative_ci": ci and [self._level * end for end in ci],
            # A low ratio alone may be noise: only its whole interval says that it is faster.
            "faster": ci is not None and ci[1] < 1,
        }

    def _final(self, name: str, comparison: Mapping[str, Any] | None) -> None:
        if comparison is None or name not in self._pairs:
            return
        names = ("ratio", "ci", "confidence", "margin", "decision", "looks", "reason")
        self.board.update(name, final={each: comparison[each] for each in names})
        self._ended.append(name)
        if len(self._ended) > _REPLAYED:
            # Its samples are not needed any more, and are most of what a long run takes.
            oldest = self._ended.popleft()
            self.board.update(oldest, **self._pairs.pop(oldest).document(most=_OLD_POINTS))

    def _result(self, number: int, value: dict[str, Any], time: str) -> None:
        result = parse_round(value)
        best, promotion, state = result.best, result.promotion, result.state.focus
        applied = promotion is not None and promotion.applied
        comparison = None if result.sweep is None else result.sweep.comparison
        if best is not None:
            label = result.decision.label
            self._candidate(number, best.sha256[:12], decision=label, promoted=applied)
        if applied and comparison is not None and comparison.ratio is not None:
            self._level *= comparison.ratio
        self.board.update(
            f"round/{number}",
            ended=time,
            direction=result.direction.id,
            title=result.direction.title,
            because=result.direction.reason,
            bottleneck=state.bottleneck,
            regime=state.regime,
            basis=state.basis,
            resource=state.limiting_resource,
            decision=result.decision.model_dump(mode="json"),
            best=None if best is None else best.name,
            ratio=None if comparison is None else comparison.ratio,
            ci=None if comparison is None else comparison.ci,
            applied=applied,
            promotion=None if promotion is None else promotion.detail,
            incumbent=result.incumbent.name,
            level=self._level,
            candidates=len(result.candidates),
            refused=len(result.refused),
            signals=[f"{each.kind}: {each.detail}" for each in result.signals],
            notes=list(result.notes),
        )
        regimes = [_regime(each) for each in result.state.regimes]
        self.board.put("state", {"round": number, "regimes": regimes})


def _regime(signature: Signature) -> dict[str, Any]:
    names = {
        "regime",
        "workloads",
        "total_us",
        "time_share",
        "bottleneck",
        "dominant_kernel",
        "dominant_share",
        "launch_count",
        "floor_us",
        "distance_to_floor",
    }
    return signature.model_dump(mode="json", include=names)


def axes_text(axes: Mapping[str, Any]) -> str:
    """Axes of a workload in one line."""
    return ", ".join(f"{name}={extent}" for name, extent in axes.items())


def _flags(candidate: Mapping[str, Any], evaluation: Mapping[str, Any]) -> list[str]:
    """Codes that any stage has raised, each once."""
    raised = [each["code"] for each in evaluation["flags"]]
    return list(dict.fromkeys([*candidate.get("flags", ()), *raised]))
