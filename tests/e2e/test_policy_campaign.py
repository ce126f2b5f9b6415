"""A campaign with a search policy, by the commands, on the CPU: killed and resumed."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.alone

CHECKOUT = Path(__file__).parents[2]


@pytest.mark.parametrize("policy", ["pes", pytest.param("single-lineage", marks=pytest.mark.slow)])
def test_a_policy_survives_a_kill_and_keeps_its_limits(policy: str, tmp_path: Path) -> None:
    """SIGKILL in the first gate, then to the end: nothing lost, nothing twice, all recorded."""
    script = runpy.run_path(str(CHECKOUT / "scripts" / "policy_campaign.py"))
    setup = script["Setup"](
        definition="gdn_decode",
        rounds=2,
        candidates=1,
        workload="0",
        agent="knobs",
        target="cpu",
        max_dollars=1.0,
        max_device_s=600.0,
        root=CHECKOUT,
    )
    found = script["campaign"](setup, policy, tmp_path / "builds")
    assert all(found["checks"].values()), found["checks"]
    assert found["records"] > found["records_before"] > 0
    assert len(found["rounds"]) == 2
