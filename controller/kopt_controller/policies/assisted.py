"""The round as it is: state, direction, candidates, judge, memory. The default."""

from __future__ import annotations

from .protocol import PlainPolicy, SearchContext, SearchFactory, SearchPolicy

__all__ = ["POLICY", "AssistedPolicy"]


class AssistedPolicy(PlainPolicy):
    """Everything that kopt knows is at the agent's disposal; only a promotion moves on."""

    name = "assisted"


def _create(context: SearchContext) -> SearchPolicy:
    del context
    return AssistedPolicy()


POLICY = SearchFactory(create=_create)
