"""What one call keeps in its ledger: the prompt, sessions, attempts, costs, and what came of it.

Keys: ``prompt``, ``worktree/<n>``, ``started/<n>``, ``session/<n>``, ``turn/<n>/<k>``,
``usage/<n>/<i>`` and ``drafted``, where ``n`` counts the attempts over all processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kopt_harness.ledger import Ledger

from ...costs import Usage, note_turn, note_usage
from ..protocol import Answer, Draft, Drafted, Question
from .claims import harmless, harmless_all
from .prompt import Prompt
from .repair import read_json
from .secrets import Secrets

__all__ = ["CallLedger", "with_data"]

_MOST = 1000


class CallLedger:
    """The ledger of one call, in the words of a call."""

    def __init__(self, ledger: Ledger, secrets: Secrets) -> None:
        self._ledger = ledger
        self._secrets = secrets
        self._turns = 0

    @property
    def ledger(self) -> Ledger:
        """As it is."""
        return self._ledger

    def start(self) -> int:
        """Number of a new attempt."""
        number = self._count("started")
        self._ledger.put(f"started/{number}", {"attempt": number})
        self._turns = 0
        return number

    def session(self) -> dict[str, Any] | None:
        """The last session that is known, with the worktree that it was in."""
        for number in reversed(range(self._count("started"))):
            found = self._ledger.get(f"session/{number}")
            if found is not None:
                return found if found["session"] else None
        return None

    def note_session(self, attempt: int, session: str, path: str) -> None:
        """Keeps a session as soon as it is known; an empty one forgets those before."""
        if self._ledger.get(f"session/{attempt}") is None:
            self._ledger.put(f"session/{attempt}", {"session": session, "path": path})

    def note_turn(self, attempt: int, usage: Usage) -> None:
        """Keeps what one answer has used."""
        note_turn(self._ledger, attempt, self._turns, usage)
        self._turns += 1

    def note_usage(self, attempt: int, uses: Sequence[Usage]) -> None:
        """Keeps what an attempt that has ended has used."""
        note_usage(self._ledger, attempt, uses)

    def spent_in(self, session: str) -> list[Usage]:
        """What attempts in a session have used that came to their end."""
        found: list[Usage] = []
        for number in range(self._count("started")):
            of = self._ledger.get(f"session/{number}")
            if of is not None and of["session"] == session:
                parts = range(self._count(f"usage/{number}"))
                values = [self._ledger.get(f"usage/{number}/{part}") for part in parts]
                found += [Usage.model_validate(value) for value in values]
        return found

    def keep(self, drafted: Drafted) -> Drafted:
        """Keeps what came of the call, without any secret and without what a terminal obeys."""
        drafts, refused = self._secrets.screen(drafted.drafts)
        notes = tuple(self.redacted(note) for note in (*drafted.notes, *refused))
        left = tuple(self.redacted(note) for note in (*drafted.refused, *refused))
        clean = drafted._replace(drafts=tuple(map(_shown, drafts)), notes=notes, refused=left)
        self._ledger.put(
            "drafted",
            {
                "drafts": [draft.model_dump(mode="json") for draft in clean.drafts],
                "usage": [usage.model_dump(mode="json") for usage in clean.usage],
                "notes": list(clean.notes),
                "ending": clean.ending,
                "session": clean.session,
                "refused": list(clean.refused),
            },
        )
        return clean

    def kept(self) -> Drafted | None:
        """What came of the call before this process was killed."""
        found = self._ledger.get("drafted")
        if found is None:
            return None
        return Drafted(
            drafts=tuple(Draft.model_validate(each) for each in found["drafts"]),
            usage=tuple(Usage.model_validate(each) for each in found["usage"]),
            notes=tuple(found["notes"]),
            ending=found["ending"],
            session=found["session"],
            refused=tuple(found.get("refused", ())),
        )

    def prompt(self, compute: Callable[[], Prompt]) -> Prompt:
        """What the agent is told; the same after a kill, whatever has changed since."""
        found = self.once("prompt", lambda: compute().document())
        return Prompt(found["text"], found["sha256"])

    def keep_answer(self, answer: Answer) -> Answer:
        """Keeps what a question was answered with, without any secret."""
        clean = answer._replace(
            text=self.redacted(answer.text),
            notes=tuple(self.redacted(note) for note in answer.notes),
        )
        self._ledger.put(
            "answer",
            {
                "text": clean.text,
                "usage": [usage.model_dump(mode="json") for usage in clean.usage],
                "notes": list(clean.notes),
                "ending": clean.ending,
            },
        )
        return clean

    def answered(self) -> Answer | None:
        """What a question was answered with before this process was killed."""
        found = self._ledger.get("answer")
        if found is None:
            return None
        return Answer(
            text=found["text"],
            usage=tuple(Usage.model_validate(each) for each in found["usage"]),
            notes=tuple(found["notes"]),
            ending=found["ending"],
        )

    def redacted(self, words: str) -> str:
        """A text that may be shown: no secret, and nothing that a terminal obeys."""
        return harmless(self._secrets.redact(words))

    def once(self, key: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """A value that is computed once, kept without any secret."""
        value = self._ledger.get(key)
        if value is None:
            clean = self._secrets.redact_all(compute())
            assert isinstance(clean, dict)
            self._ledger.put(key, clean)
            return clean
        return value

    def _count(self, kind: str) -> int:
        return next((n for n in range(_MOST) if self._ledger.get(f"{kind}/{n}") is None), _MOST)


def _shown(draft: Draft) -> Draft:
    """The draft with words that may be shown; its sources stay as they are."""
    words = {name: harmless(getattr(draft, name)) for name in ("name", "rationale", "technique")}
    return draft.model_copy(update=words)


def with_data(question: Question, answer: Answer) -> Answer:
    """The answer with its data, where the question has asked for some.

    Args:
        question: What was asked.
        answer: As it was kept.
    """
    found = read_json(answer.text) if question.shape is not None else None
    return answer._replace(data=None if found is None else harmless_all(found.value))
