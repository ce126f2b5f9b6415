"""What the agent ``knobs`` turns along with a direction, and what its effect is put down to."""

from pathlib import Path
from typing import Any

import pytest
from kopt_controller.agents import Proposal, RoundBrief, get_agent
from kopt_controller.agents.protocol import AgentContext
from kopt_controller.directions import load_directions
from kopt_controller.evidence import collect
from kopt_controller.explain import explain_blocks, explanation
from kopt_controller.memory import Memory, RoundMemory, Trial, parse_round
from kopt_controller.space import CatalogSpace, Point
from kopt_controller.state import Floor, Observation, derive_state
from kopt_harness.archive import Archive
from kopt_harness.schema import Profile, SolutionRef, Verdict
from kopt_harness.targets import get_target

Toy = Any
MORE = "".join(
    f'\n[tunables.K{i}]\nvalues = [1, 2, 4, 8]\ndefault = 2\ndirections = ["fusion"]\n'
    for i in range(5)
)


def _context(toy: Toy, inbox: Path) -> AgentContext:
    definition = toy.catalog.resolve("toy")
    return AgentContext(
        definition=definition,
        space=CatalogSpace(toy.catalog, definition, get_target("cpu")),
        load=lambda path: pytest.fail(f"{path} is not asked for"),
        inbox=inbox,
    )


def _proposals(
    toy: Toy, inbox: Path, direction: str, seen: dict[tuple[int, int], float], **changes: Any
) -> tuple[Proposal, ...]:
    """Of ``tuned`` as the incumbent, where ratios of (TILE, UNROLL) are known."""
    context = _context(toy, inbox)
    incumbent = changes.pop("incumbent", toy.solution("tuned"))
    trials = []
    (family,) = (f for f in context.space.families() if f.name == "tuned")
    for (tile, unroll), ratio in seen.items():
        settings = family.defaults() | {"TILE": tile, "UNROLL": unroll}
        packed = context.space.pack(Point("tuned", settings))
        trials.append(
            Trial(
                name=packed.name,
                sha256=packed.sha256,
                family="tuned",
                settings=settings,
                verdict=Verdict.PASS,
                passed=ratio < 1,
                ratio=ratio,
                ci=(ratio * 0.99, ratio * 1.01),
            )
        )
    past = RoundMemory(
        run="r",
        round=1,
        direction="exploration",
        bottleneck="memory",
        regime="n=1",
        incumbent=incumbent.sha256,
        label="archive",
        code="speed",
        ratio=None,
        promoted=False,
        swept=None,
        trials=tuple(trials),
    )
    profile = Profile(
        profiler="null",
        solution=SolutionRef(name="tuned", definition="toy_op_n", sha256="00"),
        target="cpu",
        uuid="0",
        axes={"n": 1},
        total_us=None,
    )
    floor = Floor(None, None, "unknown")
    brief = RoundBrief(
        definition=context.definition,
        target="cpu",
        round=2,
        state=derive_state([Observation("n=1", 1, profile, 8, 1, floor)]),
        direction=load_directions()[direction],
        incumbent=incumbent,
        memory=Memory(rounds=(past,)) if trials else Memory(),
        limit=6,
        seed=1,
    )
    return get_agent("knobs").create(context).propose(brief._replace(**changes)).candidates


def test_a_direction_takes_along_what_is_expected_to_help(toy: Toy, tmp_path: Path) -> None:
    """Every candidate turns a knob of the direction; some turn another one with it, and say so."""
    found = _proposals(toy, tmp_path, "tiling", {(2, 1): 0.9, (1, 2): 0.85, (1, 4): 0.9})
    assert all(each.settings["TILE"] != 1 for each in found)
    joint = [each for each in found if each.attribution == "joint"]
    assert (joint[0].settings, joint[0].technique) == ({"TILE": 2, "UNROLL": 2}, "TILE+UNROLL")
    assert {each.settings["UNROLL"] != 1 for each in joint} == {True}
    alone = [each for each in found if each.attribution == "direction"]
    assert {each.settings["UNROLL"] for each in alone} <= {1}
    expected = [each for each in joint if "expected" in each.rationale]
    assert expected
    assert all("; beside it UNROLL 1 to " in each.rationale for each in expected)


def test_what_others_would_win_without_it_is_not_the_directions(toy: Toy, tmp_path: Path) -> None:
    """All tiles were slow and unrolling helped: no tile is turned in order to unroll further."""
    seen = {(tile, 1): 1.5 for tile in (2, 4, 8, 16)} | {(1, 2): 0.8}
    tiled = _proposals(toy, tmp_path, "tiling", seen, limit=20)
    assert {each.settings["UNROLL"] for each in tiled} <= {2}, "4 and 8 promise more without a tile"
    unrolled = _proposals(toy, tmp_path, "vectorisation", seen, limit=20)
    assert {"TILE": 1, "UNROLL": 4} in [each.settings for each in unrolled]
    anywhere = _proposals(toy, tmp_path, "exploration", seen, limit=20)
    assert {"TILE": 2, "UNROLL": 4} in [each.settings for each in anywhere]


def test_changes_that_helped_are_no_candidate_of_a_foreign_direction(
    toy: Toy, tmp_path: Path
) -> None:
    """Put together they turn no knob of the direction, and nobody asked for them."""
    helped = {(2, 1): 0.9, (1, 2): 0.9}
    assert _proposals(toy, tmp_path, "occupancy", helped) == ()
    assert _proposals(toy, tmp_path, "tiling", helped)[0].settings == {"TILE": 2, "UNROLL": 2}


def test_as_long_as_nothing_is_known_the_direction_stays_alone(toy: Toy, tmp_path: Path) -> None:
    """Nothing lets expect that another knob helps."""
    found = _proposals(toy, tmp_path, "tiling", {})
    assert {each.attribution for each in found} == {"direction"}
    assert {each.settings["UNROLL"] for each in found} == {1}


def test_of_very_many_settings_those_near_what_is_good_are_looked_at(
    toy: Toy, tmp_path: Path
) -> None:
    """Seven knobs, 20480 settings: the direction takes others along, at most two changes away."""
    config = toy.root.kernels / "toy_op_n" / "solutions" / "tuned" / "config.toml"
    config.write_text(config.read_text() + MORE)
    found = _proposals(toy, tmp_path, "tiling", {(2, 1): 0.9, (1, 2): 0.85, (1, 4): 0.9})
    assert found[0].settings | {"TILE": 2, "UNROLL": 2} == found[0].settings
    assert all(each.settings["TILE"] != 1 for each in found)
    assert {each.attribution for each in found} >= {"joint"}
    home = toy.solution("tuned")
    assert home.sha256 not in {each.solution.sha256 for each in found}
    changed = [sum(v != 2 for k, v in each.settings.items() if k[0] == "K") for each in found]
    assert max(changed) <= 2


def test_another_implementation_is_of_a_direction_that_rewrites(toy: Toy, tmp_path: Path) -> None:
    """For any other, a knob is not all that differs from the incumbent."""
    plain = toy.solution("plain")
    rewritten = _proposals(toy, tmp_path, "fusion", {}, incumbent=plain)
    assert (rewritten[0].family, rewritten[0].attribution) == ("tuned", "direction")
    plain = plain.model_copy(update={"name": "stranger"})
    sources = [s.model_copy(update={"content": s.content + "# own\n"}) for s in plain.sources]
    stranger = type(plain).model_validate(plain.model_dump() | {"sources": sources})
    found = _proposals(toy, tmp_path, "tiling", {}, incumbent=stranger)
    assert {each.attribution for each in found if each.family == "tuned"} == {"joint"}


def test_the_record_says_what_was_joint(toy: Toy) -> None:
    """In the round, in memory, in the evidence and in the explanation; old rounds say nothing."""
    campaign = toy.campaign(rounds=6)
    rounds = campaign.execute().rounds
    said = {c.sha256: c.attribution for each in rounds for c in each.candidates}
    assert set(said.values()) == {"direction", "joint"}
    remembered = Memory()
    for each in rounds:
        remembered = remembered.learn("r", each)
    trials = [trial for past in remembered.rounds for trial in past.trials]
    assert {t.sha256: t.attribution for t in trials} == said
    assert {e.sha256: e.attribution for e in collect(Archive(toy.root.local))} == said
    joint = next(e for e in rounds if any(c.attribution == "joint" for c in e.candidates))
    lines = [b for b in explain_blocks(explanation(joint)) if isinstance(b, str)]
    name = next(c.name for c in joint.candidates if c.attribution == "joint")
    assert any(line.startswith(f"Candidate: {name} (joint: ") for line in lines)
    old = rounds[0].model_dump(mode="json")
    for candidate in old["candidates"]:
        del candidate["attribution"]
    assert [c.attribution for c in parse_round(old).candidates] == [None]
