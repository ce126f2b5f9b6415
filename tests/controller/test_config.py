"""Defaults < file < flag, and clear words for what cannot be."""

from pathlib import Path
from typing import Any

import pytest
from kopt_controller.config import RunConfig, load_config
from kopt_harness.errors import InvalidInputError, NotFoundError

FILE = 'agent = "inbox"\nrounds = 3\n[measure]\ntrials = 5\nmargin = 0.01\n'


def test_flags_win_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    """Three layers, one function; None is a flag that was not given."""
    (tmp_path / "mine.toml").write_text(FILE)
    flags = {"rounds": 7, "agent": None, "measure.trials": 9, "measure.seed": None}
    config = load_config(tmp_path, "mine", flags)
    assert (config.rounds, config.agent) == (7, "inbox")
    assert (config.measure.trials, config.measure.margin) == (9, 0.01)
    assert config.max_candidates == RunConfig().max_candidates
    assert config.measure.seed is None


def test_a_round_on_a_cpu_gates_one_candidate_less(tmp_path: Path) -> None:
    """Unless somebody says how many."""
    for given, cpu, gpu in ((None, 3, 4), (7, 7, 7)):
        config = load_config(tmp_path, None, {"max_candidates": given})
        assert (config.candidates_on("cpu"), config.candidates_on("cuda")) == (cpu, gpu)


def test_without_a_name_default_is_used_where_it_exists(tmp_path: Path) -> None:
    """A checkout's own default; nothing but the code's defaults elsewhere."""
    assert load_config(tmp_path, None, {}) == RunConfig()
    (tmp_path / "default.toml").write_text("rounds = 2\n")
    assert load_config(tmp_path, None, {}).rounds == 2


def test_a_path_is_a_configuration_too(tmp_path: Path) -> None:
    """A file anywhere, not only in configs/."""
    path = tmp_path / "elsewhere.toml"
    path.write_text(FILE)
    assert load_config(tmp_path / "configs", str(path), {}).agent == "inbox"


def test_an_unknown_configuration_lists_the_known(tmp_path: Path) -> None:
    """The hint has the names."""
    (tmp_path / "slow.toml").write_text("")
    with pytest.raises(NotFoundError) as caught:
        load_config(tmp_path, "fast", {})
    assert "slow" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colour = 3\n", "colour"),
        ("rounds = 0\n", "rounds"),
        ('promotion = "never"\n', "never"),
        ("[measure]\ntrails = 3\n", "measure.trails"),
        ("rounds =\n", "TOML"),
        ("measure = 3\n", "measure"),
    ],
)
def test_a_bad_file_is_named_with_the_field(tmp_path: Path, text: str, message: str) -> None:
    """One sentence that says which value is wrong, and where."""
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(InvalidInputError) as caught:
        load_config(tmp_path, "bad", {"measure.trials": 2})
    assert message in caught.value.message
    assert caught.value.hint


def test_all_wrong_fields_are_named_at_once(tmp_path: Path) -> None:
    """Each with its rule and its value, in the words of kopt."""
    text = 'rounds = 0\ncolour = 3\n[agents.openai]\nmax_turns = "x"\n'
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(InvalidInputError) as caught:
        load_config(tmp_path, "bad", {})
    said = caught.value.message
    assert "'rounds' must be at least 1, not 0" in said
    assert "'agents.openai.max_turns' must be a whole number, not 'x'" in said
    assert "'colour' is not known" in said


def test_a_bad_flag_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    """The message says that the command line is wrong."""
    (tmp_path / "good.toml").write_text(FILE)
    with pytest.raises(InvalidInputError, match="command line"):
        load_config(tmp_path, "good", {"promotion": "maybe"})


def test_every_shipped_configuration_loads(repo_root: Any) -> None:
    """configs/*.toml are read by the code that is beside them."""
    paths = sorted((repo_root / "configs").glob("*.toml"))
    assert {"default", "quick"} <= {path.stem for path in paths}
    for path in paths:
        load_config(repo_root / "configs", path.stem, {})


def test_a_profiler_that_sees_nothing_run_is_refused(toy: Any) -> None:
    """Before the campaign begins, with those that do; a name that is none as well."""
    with pytest.raises(InvalidInputError, match="'sass'") as caught:
        toy.campaign(profiler="sass")
    assert "torch" in caught.value.hint
    assert "sass" not in caught.value.hint
    with pytest.raises(NotFoundError, match="'nsight'"):
        toy.campaign(profiler="nsight")
    assert not toy.root.local.joinpath("runs").exists()
