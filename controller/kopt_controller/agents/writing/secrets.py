"""Values of the environment that no prompt, journal, note or source may contain."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kopt_harness.environ import secret_variables

from ..protocol import Draft

__all__ = ["Secrets"]


class Secrets:
    """The secrets of this process's environment, as they are now."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        """Reads them.

        Args:
            names: Variables that hold one, whatever they are called.
        """
        found = secret_variables(names)
        # The longest first: one may contain another.
        self._values = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))

    def found_in(self, text: str) -> tuple[str, ...]:
        """Names of the variables whose values are in a text, or were before it was redacted."""
        marked = ((name, value, f"[{name}]") for name, value in self._values)
        return tuple(sorted(n for n, value, mark in marked if value in text or mark in text))

    def redact(self, text: str) -> str:
        """The text with each value replaced by the name of its variable."""
        for name, value in self._values:
            text = text.replace(value, f"[{name}]")
        return text

    def screen(self, drafts: Iterable[Draft]) -> tuple[tuple[Draft, ...], tuple[str, ...]]:
        """Drafts without those that contain a secret, and a note for each that does."""
        clean: list[Draft] = []
        notes: list[str] = []
        for draft in drafts:
            texts = [draft.name, draft.rationale, draft.technique]
            texts += [text for file in draft.files for text in (file.path, file.content)]
            leaked = sorted({name for text in texts for name in self.found_in(text)})
            if leaked:
                names = ", ".join(leaked)
                notes.append(
                    f"the draft {draft.name!r} is refused: it contains the value of {names}"
                )
            else:
                clean.append(draft)
        return tuple(clean), tuple(notes)

    def redact_all(self, value: Any) -> Any:
        """The same for every text in a JSON value."""
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, dict):
            return {self.redact(str(key)): self.redact_all(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.redact_all(each) for each in value]
        return value
