"""Moving the incumbent: evidence first, the pointer last.

Both ways to a promotion end here: a round with ``promotion = "auto"``, and ``kopt promote``,
which sweeps the archived bytes again before it does. Applying the same promotion again
changes nothing, so one that was interrupted is repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from kopt_harness.archive import Archive
from kopt_harness.catalog import Catalog
from kopt_harness.journal import Journal
from kopt_harness.retain import Evidence, set_incumbent, summarise, write_evidence
from kopt_harness.schema import Definition

from .result import CandidateRef, PromotionRecord
from .state import Floor, Signature
from .world import Promotion

__all__ = ["Promoter", "limits_sentence"]


class Promoter:
    """Writes the retained evidence of one definition on one target, and moves its pointer."""

    def __init__(
        self,
        catalog: Catalog,
        definition: Definition,
        target: str,
        *,
        journal: Journal,
        floors: Mapping[str, Floor],
    ) -> None:
        self._catalog = catalog
        self._definition = definition
        self._target = target
        self._journal = journal
        self._floors = floors

    def apply(
        self,
        promotion: Promotion,
        *,
        mode: Literal["auto", "command"] = "auto",
        overridden: tuple[str, ...] = (),
    ) -> PromotionRecord:
        """Retains the candidate, unless the incumbent has moved since it was compared.

        Args:
            promotion: What was decided, on what evidence.
            mode: Who applies it.
            overridden: Flags that a person has accepted; kept in the evidence.
        """
        candidate = promotion.candidate
        now = self._catalog.incumbent(self._definition, self._target)
        current = None if now is None else now.sha256
        if current not in (promotion.incumbent.sha256, candidate.sha256):
            name = "nothing" if now is None else f"{now.name} ({now.sha256[:12]})"
            detail = (
                f"not applied: {name} has become the incumbent since the comparison with "
                f"{promotion.incumbent.name}; compare again with kopt promote"
            )
            return PromotionRecord(mode=mode, applied=False, detail=detail)
        Archive(self._catalog.root.local).put(candidate)
        folder = self._catalog.root.retained / self._definition.name / self._target
        write_evidence(folder, self._evidence(promotion, overridden or promotion.overridden))
        pointer = self._catalog.folder(self._definition) / "retained.toml"
        set_incumbent(pointer, self._target, candidate)
        root = self._catalog.root.path
        detail = (
            f"{pointer.relative_to(root)} now names {candidate.name} for {self._target}; "
            f"evidence in {folder.relative_to(root)}"
        )
        return PromotionRecord(mode=mode, applied=True, detail=detail)

    def _evidence(self, promotion: Promotion, overridden: tuple[str, ...]) -> Evidence:
        sources = {floor.source for floor in self._floors.values()}
        date = datetime.now(UTC).isoformat(timespec="seconds")
        summary = summarise(
            promotion.sweep,
            date=date,
            floors_us={uuid: floor.us for uuid, floor in self._floors.items()},
            floor_source="; ".join(sorted(sources)),
            limits=limits_sentence(promotion.state.focus),
            provisional=True,
        )
        decision = {
            "run": self._journal.path.parent.name,
            "date": date,
            "candidate": _ref(promotion.candidate.name, promotion.candidate.sha256),
            "incumbent": _ref(promotion.incumbent.name, promotion.incumbent.sha256),
            "decision": promotion.decision.model_dump(mode="json"),
            "overridden_flags": list(overridden),
            "conditions": promotion.rules.model_dump(mode="json"),
        }
        profile = {
            "state": promotion.state.document(),
            "profiles": [each.model_dump(mode="json") for each in promotion.profiles],
        }
        prefixes = tuple(f"{prefix}/" for prefix in promotion.samples_prefixes)
        samples = {
            key: self._journal.get(key)
            for key in self._journal.completed()
            if key.startswith(prefixes) and not key.endswith("/outcome")
        }
        return Evidence(promotion.candidate, summary, samples, decision, profile)


def limits_sentence(signature: Signature) -> str:
    """What limits a solution in the regime where most time can be won."""
    where = f"in {signature.regime}: {signature.bottleneck}"
    what = "" if signature.limiting_resource is None else f" ({signature.limiting_resource})"
    distance = signature.distance_to_floor
    far = "floor unknown" if distance is None else f"{distance:.2f} times its floor"
    return f"{where}{what}, by {signature.basis}; {far}"


def _ref(name: str, sha256: str) -> dict[str, Any]:
    return CandidateRef(name=name, sha256=sha256).model_dump()
