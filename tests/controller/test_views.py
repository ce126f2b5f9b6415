"""Views of the archive: the same figures as the journals and the committed evidence."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from kopt_controller.campaign import CampaignResult
from kopt_controller.indexed import open_index
from kopt_controller.metering import read_costs
from kopt_controller.steering import STEER_FILE, Steer, append_steers
from kopt_controller.views import (
    Chapter,
    Sources,
    SubjectKey,
    campaign_rows,
    list_subjects,
    nearest_place,
    nearest_rank,
    retained_pair,
    run_chapter,
    subject_chapter,
)
from kopt_harness.archive import Archive
from kopt_harness.catalog import Catalog
from kopt_harness.journal import read_journal
from kopt_harness.root import Root


def chapter_of(root: Root, definition: str, target: str) -> Chapter:
    """All that is known of a definition on a target."""
    with open_index(root.local) as index:
        sources = Sources(root, Catalog(root), index)
        return subject_chapter(sources, SubjectKey(definition, target))


@pytest.fixture
def campaign(toy: Any) -> CampaignResult:
    """Three rounds on the simulated device."""
    return toy.campaign(rounds=3).execute()


def test_a_chapter_has_every_round_and_candidate_of_the_campaign(searched_toy: Any) -> None:
    """Nothing that was measured is left out."""
    toy, campaign = searched_toy
    chapter = chapter_of(toy.root, "toy_op_n", "cpu")
    assert [point.round for point in chapter.rounds] == [1, 2, 3]
    expected = [c.sha256 for result in campaign.rounds for c in result.candidates]
    assert [point.sha256 for point in chapter.candidates] == expected
    assert [point.label for point in chapter.rounds] == [r.decision.label for r in campaign.rounds]


def test_the_best_level_is_the_product_of_the_promoted_ratios(searched_toy: Any) -> None:
    """Best so far is what the promotions have multiplied up to."""
    toy, campaign = searched_toy
    chapter = chapter_of(toy.root, "toy_op_n", "cpu")
    level = 1.0
    for result, point in zip(campaign.rounds, chapter.rounds, strict=True):
        if result.incumbent.sha256 != result.incumbent_before.sha256:
            level *= result.sweep.comparison.ratio
        assert point.best == pytest.approx(level)
    assert level < 1, "the fixture promotes something"


def test_the_headline_is_the_last_promotion(searched_toy: Any) -> None:
    """A later round that promotes nothing does not replace it."""
    toy, campaign = searched_toy
    headline = chapter_of(toy.root, "toy_op_n", "cpu").headline
    promoted = [r for r in campaign.rounds if r.promotion is not None and r.promotion.applied][-1]
    assert headline is not None
    assert headline.candidate.sha256 == promoted.incumbent.sha256
    assert headline.ratio == promoted.sweep.comparison.ratio
    assert headline.ci == promoted.sweep.comparison.ci


def test_directions_count_every_candidate_once(searched_toy: Any) -> None:
    """The outcomes of a direction add up to what was tried in it."""
    toy = searched_toy.toy
    chapter = chapter_of(toy.root, "toy_op_n", "cpu")
    for row in chapter.directions:
        parts = row.faster + row.undecided + row.slower + row.wrong + row.not_judged
        assert parts == row.tried
    assert sum(row.tried for row in chapter.directions) == len(chapter.candidates)


def test_a_chapter_of_one_run_has_that_run_alone(toy: Any, campaign: CampaignResult) -> None:
    """Other campaigns of the same operator stay out."""
    toy.campaign(rounds=1).execute()
    with open_index(toy.root.local) as index:
        sources = Sources(toy.root, toy.catalog, index)
        alone = run_chapter(sources, Archive(toy.root.local).run(campaign.run))
        both = subject_chapter(sources, SubjectKey("toy_op_n", "cpu"))
    assert {point.run for point in alone.rounds} == {campaign.run}
    assert len(both.runs) == 2


def test_a_steer_that_no_round_has_heard_waits(toy: Any, campaign: CampaignResult) -> None:
    """It is shown, and belongs to no round yet."""
    run = Archive(toy.root.local).run(campaign.run)
    append_steers(run.folder / STEER_FILE, [Steer(kind="note", value="try tiles", by="ann")])
    (steer,) = chapter_of(toy.root, "toy_op_n", "cpu").steers
    assert (steer.order, steer.value, steer.by) == (0, "try tiles", "ann")


def test_a_damaged_run_is_a_problem_beside_the_others(toy: Any, campaign: CampaignResult) -> None:
    """One unreadable journal hides no other run."""
    broken = toy.campaign(rounds=1)
    broken.run.journal_path.write_text('{"schema": 99}\n{"schema": 99}\n')
    chapter = chapter_of(toy.root, "toy_op_n", "cpu")
    assert len(chapter.rounds) == 3
    assert any(broken.run.id in problem for problem in chapter.problems)


def test_a_chapter_outlives_its_definition(toy: Any, campaign: CampaignResult) -> None:
    """What was measured is shown when the operator's folder is gone."""
    (toy.root.kernels / "toy_op_n").rename(toy.root.path / "gone")
    chapter = chapter_of(toy.root, "toy_op_n", "cpu")
    assert len(chapter.rounds) == 3
    assert chapter.subject.workloads == 0
    assert chapter.problems


def test_a_campaign_without_a_closed_round_has_a_chapter_all_the_same(toy: Any) -> None:
    """A run that has just begun is shown with what it was asked for."""
    begun = toy.campaign(rounds=2)
    chapter = chapter_of(toy.root, "toy_op_n", "cpu")
    assert [asked.run for asked in chapter.runs] == [begun.run.id]
    assert chapter.headline is None
    assert not chapter.rounds


def test_the_cost_ledger_adds_up_what_the_runs_have_kept(searched_toy: Any) -> None:
    """Wall time and seconds of the device are there, also without an agent that costs."""
    toy, campaign = searched_toy
    folder = Archive(toy.root.local).run(campaign.run).folder
    kept = read_costs(folder)
    rows = {row.what: row for row in chapter_of(toy.root, "toy_op_n", "cpu").costs}
    assert rows["wall time of the campaigns"].amount == kept.wall_s
    assert rows["device, by the harness"].amount == kept.total.harness_device_s
    assert all(row.unit for row in rows.values())


def test_a_new_line_begins_where_incumbents_do_not_follow_from_each_other(
    toy: Any, campaign: CampaignResult
) -> None:
    """What somebody has put in place by hand is compared with nothing before it."""
    kernel = toy.root.kernels / "toy_op_n" / "solutions" / "plain" / "solution/python/kernel.py"
    kernel.write_text("def run(x, y):\n    y[:] = 1 + x\n")
    (toy.root.kernels / "toy_op_n" / "retained.toml").write_text('[cpu]\nsolution = "plain"\n')
    toy.campaign(rounds=1).execute()
    points = chapter_of(toy.root, "toy_op_n", "cpu").rounds
    assert [point.segment for point in points] == [1, 1, 1, 2]


def test_a_promotable_candidate_is_the_headline_where_nothing_was_promoted(toy: Any) -> None:
    """With promotion left to a person, later rounds do not hide what waits for one."""
    result = toy.campaign(rounds=4, promotion="ask").execute()
    chapter = chapter_of(toy.root, "toy_op_n", "cpu")
    promotable = [r for r in result.rounds if r.decision.label == "promote"]
    assert chapter.headline is not None
    assert promotable
    assert chapter.headline.candidate.sha256 == promotable[-1].best.sha256
    assert not chapter.headline.applied
    assert all(point.best == 1.0 for point in chapter.rounds)


def test_damaged_evidence_is_a_problem_and_hides_no_round(
    toy: Any, campaign: CampaignResult
) -> None:
    """The rounds of the archive are there without it."""
    folder = toy.root.retained / "toy_op_n" / "cpu"
    (folder / "summary.json").write_text('{"schema": 1}')
    chapter = chapter_of(toy.root, "toy_op_n", "cpu")
    assert len(chapter.rounds) == 3
    assert any("toy_op_n/cpu" in problem for problem in chapter.problems)


def test_samples_are_those_of_the_sweep_of_the_headline(searched_toy: Any) -> None:
    """As many calls as the blocks of the journal have, of both solutions."""
    toy = searched_toy.toy
    chapter = chapter_of(toy.root, "toy_op_n", "cpu")
    assert chapter.headline is not None
    run, _, number = chapter.headline.source.partition("/")
    records = read_journal(Archive(toy.root.local).run(run).journal_path)
    blocks = [r for r in records if re.match(rf"r{number}/sweep/.*/block/", r.key)]
    assert chapter.samples
    for each in chapter.samples:
        own = [r.value for r in blocks if f"/{each.uuid}/" in r.key]
        assert each.blocks == len(own) > 0
        assert len(each.candidate_ns) == sum(len(value["b_ns"]) for value in own)
        assert len(each.incumbent_ns) == sum(len(value["a_ns"]) for value in own)


def test_campaign_rows_need_no_journal(toy: Any, campaign: CampaignResult) -> None:
    """A list of campaigns is answered by the index alone."""
    with open_index(toy.root.local) as index:
        Archive(toy.root.local).run(campaign.run).journal_path.unlink()
        (row,) = campaign_rows(index)
    assert row.rounds_closed == 3
    assert sum(row.decisions.values()) == 3


def test_retained_evidence_makes_a_chapter_without_any_run(checkout: Path, tmp_path: Path) -> None:
    """Committed evidence alone has headline, workloads, floors and samples."""
    folder = tmp_path / "artifacts"
    folder.mkdir()
    (tmp_path / "kernels").symlink_to(checkout / "kernels")
    (folder / "retained").symlink_to(checkout / "artifacts" / "retained")
    root = Root(tmp_path)
    with open_index(root.local) as index:
        assert SubjectKey("gdn_decode_qk4_v8_d128_k_last", "h200") in list_subjects(root, index)
    chapter = chapter_of(root, "gdn_decode_qk4_v8_d128_k_last", "h200")
    path = folder / "retained/gdn_decode_qk4_v8_d128_k_last/h200/summary.json"
    summary = json.loads(path.read_text())
    assert chapter.headline is not None
    assert chapter.headline.ratio == summary["incumbent"]["ratio"]
    told = {row["uuid"]: row for row in summary["workloads"]}
    assert {row.uuid: row.candidate_us for row in chapter.workloads} == {
        uuid: row["median_us"] for uuid, row in told.items()
    }
    assert all(row.floor_us == told[row.uuid]["floor_us"] for row in chapter.workloads)
    assert chapter.samples
    efficiency = {row.role: row for row in chapter.efficiency}
    assert efficiency["candidate"].mean_us == pytest.approx(summary["mean_us"])
    assert efficiency["incumbent"].mean_us == pytest.approx(
        summary["incumbent"]["mean_us"], rel=0.02
    )


def test_evidence_that_times_one_workload_of_a_size_has_ratios_for_all_of_it(
    checkout: Path, tmp_path: Path
) -> None:
    """Where rounds take the workloads of a size in turn, its blocks stand for each of them."""
    source = checkout / "tests/data/retained/gdn_decode_qk4_v8_d128_k_last/h200"
    folder = tmp_path / "gdn" / "h200"
    folder.mkdir(parents=True)
    for name in ("summary.json", "decision.json"):
        (folder / name).write_bytes((source / name).read_bytes())
    rows = json.loads((source / "summary.json").read_text())["workloads"]
    kept = {row["axes"]["batch_size"]: row["uuid"] for row in rows}
    units = json.loads(gzip.decompress((source / "samples.json.gz").read_bytes()))
    few = {
        k: v for k, v in units.items() if "/block/" not in k or k.split("/")[-2] in kept.values()
    }
    (folder / "samples.json.gz").write_bytes(gzip.compress(json.dumps(few).encode()))
    whole = {row.uuid: row for row in retained_pair(source).rows}
    pair = retained_pair(folder)
    assert len(kept) < len(pair.rows)
    for row in pair.rows:
        same = whole[kept[row.axes["batch_size"]]]
        assert (row.ratio, row.ci, row.blocks) == (same.ratio, same.ci, same.blocks)


@pytest.mark.parametrize(("n", "rank", "place"), [(19, 19, 18), (54, 52, 51), (100, 95, 95)])
def test_the_two_percentiles_differ_as_they_say(n: int, rank: int, place: int) -> None:
    """The value at a place of 1 to n is the place itself."""
    ordered = [float(each) for each in range(1, n + 1)]
    assert (nearest_rank(ordered), nearest_place(ordered)) == (rank, place)


@pytest.fixture
def checkout() -> Path:
    """The repository."""
    return Path(__file__).parents[2]
