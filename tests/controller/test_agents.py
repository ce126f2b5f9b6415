"""Agents: one contract for all, and what each does by itself."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kopt_controller.agents import (
    Agent,
    AgentContext,
    RoundBrief,
    agent_names,
    get_agent,
)
from kopt_controller.directions import load_directions
from kopt_controller.memory import Memory, RoundMemory, Trial
from kopt_controller.space import CatalogSpace, Point, locate
from kopt_controller.state import Floor, Observation, State, derive_state
from kopt_harness.errors import InvalidInputError, NotFoundError
from kopt_harness.pack import load, solution_json
from kopt_harness.schema import Profile, SolutionRef, Verdict
from kopt_harness.targets import get_target

Toy = Any


def _context(toy: Toy, inbox: Path, *scripted: Path) -> AgentContext:
    definition = toy.catalog.resolve("toy")
    return AgentContext(
        definition=definition,
        space=CatalogSpace(toy.catalog, definition, get_target("cpu")),
        load=lambda path: load(path, known=toy.catalog),
        inbox=inbox,
        scripted=scripted,
    )


def _state() -> State:
    """Of an incumbent of which nothing is known: what agents do must not depend on it."""
    profile = Profile(
        profiler="null",
        solution=SolutionRef(name="plain", definition="toy_op_n", sha256="00"),
        target="cpu",
        uuid="0",
        axes={"n": 1},
        total_us=None,
    )
    return derive_state([Observation("n=1", 1, profile, 8, 1, Floor(None, None, "unknown"))])


def _brief(toy: Toy, direction: str = "fusion", **changes: Any) -> RoundBrief:
    incumbent = changes.pop("incumbent", toy.solution("plain"))
    brief = RoundBrief(
        definition=toy.catalog.resolve("toy"),
        target="cpu",
        round=1,
        state=_state(),
        direction=load_directions()[direction],
        incumbent=incumbent,
        memory=Memory(),
        limit=4,
        seed=1,
    )
    return brief._replace(**changes)


def _names(agent: Agent, brief: RoundBrief) -> list[str]:
    return [proposal.solution.name for proposal in agent.propose(brief).candidates]


@pytest.mark.parametrize("name", [n for n in agent_names() if get_agent(n).writer is None])
@pytest.mark.parametrize("limit", [1, 3])
def test_an_agent_keeps_the_contract(toy: Toy, tmp_path: Path, name: str, limit: int) -> None:
    """Bounded, of the right definition, nothing twice, never the incumbent, deterministic."""
    solutions = toy.root.kernels / "toy_op_n" / "solutions"
    factory = get_agent(name)
    assert factory.promotion in ("auto", "ask")
    agent = factory.create(_context(toy, solutions, solutions / "plain", solutions / "tuned"))
    assert isinstance(agent, Agent)
    assert agent.name == name
    for direction in load_directions():
        brief = _brief(toy, direction, limit=limit)
        proposals = agent.propose(brief)
        shas = [proposal.solution.sha256 for proposal in proposals.candidates]
        assert len(shas) <= limit
        assert len(shas) == len(set(shas))
        assert brief.incumbent.sha256 not in shas
        assert all(p.solution.definition == "toy_op_n" for p in proposals.candidates)
        assert all(p.rationale for p in proposals.candidates)
        assert agent.propose(brief) == proposals


def test_an_unknown_agent_is_named_with_the_known_ones() -> None:
    """The hint lists what there is."""
    with pytest.raises(NotFoundError) as caught:
        get_agent("oracle")
    assert "knobs" in caught.value.hint


def test_other_implementations_come_first_where_a_rewrite_serves(toy: Toy, tmp_path: Path) -> None:
    """The first round tries what was never measured here."""
    agent = get_agent("knobs").create(_context(toy, tmp_path))
    assert _names(agent, _brief(toy))[0] == "tuned"


def test_only_knobs_that_serve_the_direction_are_turned(toy: Toy, tmp_path: Path) -> None:
    """Tiling turns TILE, vectorisation turns UNROLL, near values first."""
    agent = get_agent("knobs").create(_context(toy, tmp_path))
    incumbent = toy.solution("tuned")
    tiles = _names(agent, _brief(toy, "tiling", incumbent=incumbent))
    assert tiles == ["tuned-TILE2", "tuned-TILE4", "tuned-TILE8", "tuned-TILE16"]
    unrolls = _names(agent, _brief(toy, "vectorisation", incumbent=incumbent))
    assert unrolls == ["tuned-UNROLL2", "tuned-UNROLL4", "tuned-UNROLL8"]


def test_a_direction_without_a_lever_gets_nothing(toy: Toy, tmp_path: Path) -> None:
    """The loop then takes the next direction."""
    agent = get_agent("knobs").create(_context(toy, tmp_path))
    assert _names(agent, _brief(toy, "occupancy", incumbent=toy.solution("tuned"))) == []


def test_changes_that_helped_one_by_one_are_tried_together(toy: Toy, tmp_path: Path) -> None:
    """The combination comes right after what waits for a sweep; what did not help is left out."""
    context = _context(toy, tmp_path)
    incumbent = toy.solution("tuned")
    ratios = {(4, 1): 0.8, (8, 1): 0.96, (1, 2): 0.97, (1, 8): 1.2}
    trials = []
    for (tile, unroll), ratio in ratios.items():
        settings = {"TILE": tile, "UNROLL": unroll}
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
        ratio=0.96,
        promoted=False,
        swept=None,
        trials=tuple(trials),
    )
    agent = get_agent("knobs").create(context)
    brief = _brief(toy, "tiling", incumbent=incumbent, memory=Memory(rounds=(past,)))
    assert _names(agent, brief)[0] == "tuned-TILE4-UNROLL2"
    brief = brief._replace(direction=load_directions()["exploration"])
    assert _names(agent, brief)[0] == "tuned-TILE4"


def _rounds(context: AgentContext, incumbent: str, *found: tuple[int, int, float, str]) -> Memory:
    """A round for each of (TILE, UNROLL, ratio, code): gated and swept against one incumbent."""
    rounds = []
    for number, (tile, unroll, ratio, code) in enumerate(found, 1):
        settings = {"TILE": tile, "UNROLL": unroll}
        packed = context.space.pack(Point("tuned", settings))
        trial = Trial(
            name=packed.name,
            sha256=packed.sha256,
            family="tuned",
            settings=settings,
            verdict=Verdict.PASS,
            passed=True,
            ratio=ratio,
            ci=(ratio - 0.01, ratio + 0.01),
        )
        rounds.append(
            RoundMemory(
                run="r",
                round=number,
                direction="exploration",
                bottleneck="memory",
                regime="n=1",
                incumbent=incumbent,
                label="archive",
                code=code,
                ratio=ratio,
                promoted=False,
                swept=packed.sha256,
                trials=(trial,),
            )
        )
    return Memory(rounds=tuple(rounds))


def test_what_cannot_be_swept_fairly_is_not_swept_for_ever(toy: Toy, tmp_path: Path) -> None:
    """Once more, since a campaign may ask for more than the last one did; not a third time."""
    context = _context(toy, tmp_path)
    incumbent = toy.solution("tuned").sha256
    (once,) = _rounds(context, incumbent, (4, 1, 0.8, "coverage")).rounds
    assert [t.name for t in Memory(rounds=(once,)).pending(incumbent)] == ["tuned-TILE4"]
    assert Memory(rounds=(once, once)).pending(incumbent) == ()


def test_only_what_looked_faster_is_measured_again(toy: Toy, tmp_path: Path) -> None:
    """Everything is measured: what is left is undecided, looked faster, and was not seen often."""
    context = _context(toy, tmp_path)
    incumbent = toy.solution("tuned")
    space = [(tile, unroll) for tile in (1, 2, 4, 8, 16) for unroll in (1, 2, 4, 8)][1:]
    found = [(tile, unroll, 1.1, "speed") for tile, unroll in space]
    found[0] = (*space[0], 0.99, "speed")
    found[1] = (*space[1], 0.97, "regressions")
    found[2:3] = [(*space[2], 0.98, "speed")] * 3
    memory = _rounds(context, incumbent.sha256, *found).refusing([toy.solution("plain").sha256])
    agent = get_agent("knobs").create(context)
    brief = _brief(toy, "exploration", incumbent=incumbent, memory=memory)
    assert _names(agent, brief) == ["tuned-UNROLL2"]


def test_settings_are_read_back_from_the_packed_source(toy: Toy, tmp_path: Path) -> None:
    """An incumbent by hash is found again in the search space, whatever it is called."""
    space = _context(toy, tmp_path).space
    settings = {"TILE": 8, "UNROLL": 2}
    packed = space.pack(Point("tuned", settings)).model_copy(update={"name": "renamed"})
    assert locate(space, packed) == Point("tuned", settings)
    assert locate(space, toy.solution("plain")) == Point("plain", {})
    stranger = packed.model_copy(
        update={
            "sources": tuple(
                s.model_copy(update={"content": s.content + "# changed\n"}) for s in packed.sources
            )
        }
    )
    assert locate(space, type(stranger).model_validate(stranger.model_dump())) is None


def test_solutions_for_other_hardware_are_no_part_of_the_space(
    toy: Toy,
    tmp_path: Path,
    make_solution: Callable[[Path, str], None],
    plain_config: str,
) -> None:
    """A CUDA solution is not proposed on a CPU."""
    folder = toy.root.kernels / "toy_op_n" / "solutions" / "gpu"
    make_solution(folder, plain_config.replace("plain", "gpu").replace('["cpu"]', '["cuda"]'))
    definition = toy.catalog.resolve("toy")
    cpu = CatalogSpace(toy.catalog, definition, get_target("cpu"))
    h200 = CatalogSpace(toy.catalog, definition, get_target("h200"))
    assert [family.name for family in cpu.families()] == ["plain", "tuned"]
    assert [family.name for family in h200.families()] == ["gpu"]


def test_the_inbox_takes_folders_and_files_and_moves_nothing(
    toy: Toy,
    tmp_path: Path,
    make_solution: Callable[[Path, str], None],
    plain_config: str,
) -> None:
    """What cannot be used becomes a note; what was taken is remembered by content."""
    inbox = tmp_path / "inbox"
    make_solution(inbox / "b-folder", plain_config.replace('"plain"', '"dropped"') + "\n")
    source = inbox / "b-folder/solution/python/kernel.py"
    source.write_text("def run(x, y):\n    y.copy_(x + 1)\n")
    (inbox / "a-file.json").write_text(solution_json(toy.solution("tuned")))
    (inbox / "c-copy.json").write_text(solution_json(toy.solution("tuned")))
    (inbox / "d-broken.json").write_text('{"name": ')
    (inbox / ".hidden.json").write_text("{}")
    (inbox / "notes.txt").write_text("hello")
    before = sorted(path.name for path in inbox.rglob("*"))
    agent = get_agent("inbox").create(_context(toy, inbox))
    proposals = agent.propose(_brief(toy))
    assert [p.solution.name for p in proposals.candidates] == ["tuned", "dropped"]
    assert len(proposals.notes) == 1
    assert "d-broken.json" in proposals.notes[0]
    assert sorted(path.name for path in inbox.rglob("*")) == before


def test_a_full_inbox_waits_for_the_next_round(toy: Toy, tmp_path: Path) -> None:
    """Over the limit nothing is lost, and an empty folder is no error."""
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    space = _context(toy, inbox).space
    for tile in (1, 2, 4):
        point = Point("tuned", {"TILE": tile, "UNROLL": 8})
        (inbox / f"{tile}.json").write_text(solution_json(space.pack(point)))
    rounds = toy.campaign(
        agent="inbox", inbox=str(inbox), rounds=3, max_candidates=2, promotion="auto"
    )
    results = rounds.execute().rounds
    assert [len(result.candidates) for result in results] == [2, 1, 0]
    assert results[2].decision.code == "no-candidates"


def test_a_missing_inbox_is_said(toy: Toy, tmp_path: Path) -> None:
    """The round ends with a note that names the folder."""
    campaign = toy.campaign(agent="inbox", inbox=str(tmp_path / "nowhere"))
    (result,) = campaign.execute().rounds
    assert any("nowhere" in note for note in result.notes)


def test_people_and_programs_ask_before_promoting(toy: Toy, tmp_path: Path) -> None:
    """The inbox does not move the incumbent unless it is told to; knobs do."""
    assert toy.campaign(agent="inbox").manifest.mode == "ask"
    assert toy.campaign(agent="knobs").manifest.mode == "auto"
    assert toy.campaign(agent="inbox", promotion="auto").manifest.mode == "auto"


def test_a_script_goes_through_its_list(toy: Toy) -> None:
    """Each once and in order; an unreadable entry is the user's error, before anything runs."""
    folder = str(toy.root.kernels / "toy_op_n" / "solutions" / "tuned")
    rounds = toy.campaign(agent="scripted", scripted=[folder], rounds=2).execute().rounds
    assert [c.name for c in rounds[0].candidates] == ["tuned"]
    assert rounds[1].candidates == ()
    with pytest.raises((NotFoundError, InvalidInputError)):
        toy.campaign(agent="scripted", scripted=[folder + "-gone"])
