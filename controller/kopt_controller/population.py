"""A population on islands: who was made from whom, how good each is, and whom to start from.

A value: members are added and copied, nothing is changed. Scores are for choosing a parent and
for nothing else: how many times as fast as the first incumbent of the campaign, over the gates
in between, 0 for what was wrong. Each island keeps a map with the best member of each cell of
complexity, score and distance from the others, so that what is different survives.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from kopt_harness.schema import Model
from pydantic import Field

__all__ = ["CELLS", "Member", "Population"]

CELLS = 4
"""Of the map along each feature."""
SHARPNESS = 2.0
"""Exponent of the score in the weight of a parent."""


class Member(Model):
    """One judged candidate."""

    id: str = Field(pattern=r"^[0-9a-f]{12}$")
    sha256: str
    name: str
    family: str | None = None
    settings: dict[str, Any] = {}
    parent: str = ""
    """Id of what it was made from; empty for the first."""
    island: int = 0
    iteration: int = 0
    generation: int = 0
    """Steps from the first."""
    timestamp: float = 0.0
    drawn: int = 0
    """How often it was a parent."""
    score: float
    complexity: float = 0.0
    """Characters of all sources."""
    plan: str = ""
    summary: str = ""
    ratio: float | None = None
    """Over the incumbent of its round; null: it was not timed."""
    verdict: str = ""
    detail: str = ""
    """What the gate said."""
    mean_us: float | None = None
    """On the representatives, at its gate."""


class Population(Model):
    """All members that are kept, and on which island each is."""

    members: dict[str, Member] = {}
    islands: tuple[tuple[str, ...], ...] = ((),)
    iteration: int = 0
    generated: int = 0
    valid: int = 0
    migrated_at: int = 0
    """Iteration of the last migration."""

    @staticmethod
    def empty(islands: int) -> Population:
        """Islands without members."""
        return Population(islands=((),) * islands)

    def on(self, count: int) -> Population:
        """On so many islands: members of those that are gone move to the remaining ones."""
        islands: list[tuple[str, ...]] = [()] * count
        for number, ids in enumerate(self.islands):
            place = number % count
            islands[place] = tuple(dict.fromkeys((*islands[place], *ids)))
        return self.model_copy(update={"islands": tuple(islands)})

    @property
    def best(self) -> Member | None:
        """Of all islands; the first of equals."""
        return self._best(self.members)

    def best_of(self, island: int) -> Member | None:
        """Of one island; null where it is empty."""
        return self._best(self.islands[island])

    def _best(self, ids: Sequence[str] | Mapping[str, Member]) -> Member | None:
        found = [self.members[each] for each in ids]
        return max(found, key=lambda m: (m.score, -m.iteration, m.id), default=None)

    def find(self, sha256: str) -> Member | None:
        """The member of this content."""
        return next((m for m in self.members.values() if m.sha256 == sha256), None)

    def add(self, member: Member, capacity: int) -> Population:
        """With one member more; the same content again takes the newer score.

        Args:
            member: Goes to its island.
            capacity: Of an island; the worst outside of the map goes first, never the best.
        """
        known = self.find(member.sha256)
        islands = list(self.islands)
        if known is not None:
            kept: dict[str, Any] = {
                "score": member.score,
                "ratio": member.ratio,
                "mean_us": member.mean_us,
            }
            kept |= {"verdict": member.verdict, "detail": member.detail}
            members = self.members | {known.id: known.model_copy(update=kept)}
            return self.model_copy(update={"members": members})
        islands[member.island] = (*islands[member.island], member.id)
        grown = self.model_copy(
            update={
                "members": self.members | {member.id: member},
                "islands": tuple(islands),
                "generated": self.generated + 1,
                "valid": self.valid + (member.score > 0),
            }
        )
        return grown.pruned(member.island, capacity)

    def pruned(self, island: int, capacity: int) -> Population:
        """With no more members on an island than it may have, by one at most."""
        ids = self.islands[island]
        if len(ids) <= capacity:
            return self
        mapped = set(self.cells(island).values())
        best = self.best_of(island)
        spare = [i for i in ids if i not in mapped] or [i for i in ids if best and i != best.id]
        worst = min(spare, key=lambda i: (self.members[i].score, self.members[i].iteration))
        islands = list(self.islands)
        islands[island] = tuple(i for i in ids if i != worst)
        members = dict(self.members)
        if not any(worst in each for each in islands):
            del members[worst]
        return self.model_copy(update={"islands": tuple(islands), "members": members})

    def draw(self, island: int, seed: str, explore: float) -> Member | None:
        """A parent: of the island, else of all; null where nothing works.

        Args:
            island: Whose turn it is.
            seed: The same seed draws the same parent.
            explore: Probability of an even draw.
        """
        # Python's own generator: its sequence for a given seed is the same in all versions.
        rng = random.Random(seed)
        here = [self.members[i] for i in self.islands[island] if self.members[i].score > 0]
        found = here or [m for m in self.members.values() if m.score > 0]
        if not found:
            return None
        found.sort(key=lambda m: m.id)
        if rng.random() < explore:
            return rng.choice(found)
        return rng.choices(found, weights=[self.weight(m) for m in found])[0]

    def weight(self, member: Member) -> float:
        """Of a member as a parent: by its score, less the more often it was one."""
        return float(member.score**SHARPNESS / (1 + member.drawn))

    def drawn(self, id_: str) -> Population:
        """With a member that was a parent once more."""
        member = self.members[id_]
        more = member.model_copy(update={"drawn": member.drawn + 1})
        return self.model_copy(update={"members": self.members | {id_: more}})

    def migrated(self) -> Population:
        """With the best of each island also on the next one."""
        bests = [self.best_of(number) for number in range(len(self.islands))]
        islands = list(self.islands)
        for number, best in enumerate(bests):
            there = (number + 1) % len(islands)
            if best is not None and best.score > 0 and best.id not in islands[there]:
                islands[there] = (*islands[there], best.id)
        return self.model_copy(update={"islands": tuple(islands), "migrated_at": self.iteration})

    def features(self) -> dict[str, dict[str, float]]:
        """Complexity, score and distance of each member, by feature and id."""
        sizes = {i: m.complexity for i, m in self.members.items()}
        mean = sum(sizes.values()) / len(sizes) if sizes else 0.0
        return {
            "complexity": sizes,
            "score": {i: m.score for i, m in self.members.items()},
            "diversity": {i: abs(size - mean) for i, size in sizes.items()},
        }

    def cells(self, island: int) -> dict[str, str]:
        """The best member of each cell of an island's map, by cell."""
        features = self.features()
        found: dict[str, str] = {}
        for id_ in self.islands[island]:
            cell = "-".join(str(_cell(values, id_)) for values in features.values())
            other = found.get(cell)
            if other is None or self.members[id_].score > self.members[other].score:
                found[cell] = id_
        return found


def _cell(values: Mapping[str, float], id_: str) -> int:
    low, high = min(values.values()), max(values.values())
    if high <= low:
        return 0
    return min(CELLS - 1, int(CELLS * (values[id_] - low) / (high - low)))
