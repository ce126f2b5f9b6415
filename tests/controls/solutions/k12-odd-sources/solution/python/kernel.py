"""Zustandsfortschreibung: größer als ASCII, mit Zeilenenden wie unter Windows. 状態の更新."""

from .parts.deep.step import write
from .parts.table import NUMBERS


def run(*arguments) -> None:  # noqa: ANN002
    """Honest; the table is long and means nothing."""
    if sum(NUMBERS) != 1999000:
        raise ValueError("the table was cut")
    write(*arguments)
