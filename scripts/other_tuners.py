"""Searches of other packages on a recorded table, for scripts/controller_value.py.

Each gives the settings that it evaluates, in order, each once. None where the package is not
installed: Optuna and kernel_tuner are no dependencies of kopt (pip install optuna kernel-tuner).
Imported; running it does nothing.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["KERNEL_TUNER", "by_kernel_tuner", "by_tpe"]

KERNEL_TUNER = (
    "bayes_opt",
    "diff_evo",
    "dual_annealing",
    "firefly_algorithm",
    "genetic_algorithm",
    "greedy_ils",
    "greedy_mls",
    "mls",
    "pso",
    "simulated_annealing",
)
"""Strategies of kernel_tuner that search and need no further package."""

FEW = 64
"""Evaluations that are asked for first."""

Settings = Mapping[str, Any]
Rows = Sequence[tuple[Settings, float]]
"""Settings and their mean latency."""


def by_tpe(rows: Rows, goal_us: float, seed: int) -> list[Settings] | None:
    """Optuna's TPE, until it has found the goal."""
    try:
        optuna: Any = importlib.import_module("optuna")
    except ImportError:
        return None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    choices = _choices(rows)
    mean_us = {_key(settings): us for settings, us in rows}
    seen: dict[str, Settings] = {}

    def objective(trial: Any) -> float:
        picked = {name: trial.suggest_categorical(name, choices[name]) for name in choices}
        us = mean_us[_key(picked)]
        seen[_key(picked)] = picked
        if us <= goal_us:
            trial.study.stop()
        return us

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(objective, n_trials=20 * len(rows))
    return list(seen.values())


def by_kernel_tuner(
    rows: Rows, goal_us: float, seed: int, *, strategy: str
) -> list[Settings] | None:
    """One strategy of kernel_tuner in its simulation mode, with as many evaluations as rows.

    It may end before it has found the goal: strategies stop where they think that they are done.
    It cannot be stopped at the goal, so few evaluations are asked for first.
    """
    mean_us = {_key(settings): us for settings, us in rows}
    found: list[Settings] = []
    for budget in (FEW, len(rows)):
        asked = _ask_kernel_tuner(rows, seed, strategy, budget)
        if asked is None:
            return None
        found = asked
        if len(found) < budget or any(mean_us[_key(each)] <= goal_us for each in found):
            break
    return found


def _ask_kernel_tuner(rows: Rows, seed: int, strategy: str, budget: int) -> list[Settings] | None:
    try:
        tuner: Any = importlib.import_module("kernel_tuner")
        numpy: Any = importlib.import_module("numpy")
    except ImportError:
        return None
    random.seed(seed)
    numpy.random.seed(seed)
    choices = _choices(rows)
    with tempfile.TemporaryDirectory() as place, _quiet(place):
        cache = Path(place) / "cache.json"
        cache.write_text(json.dumps(_cache(rows, choices)))
        found, _ = tuner.tune_kernel(
            "table",
            "void table() {}",
            1,
            [],
            choices,
            lang="C",
            strategy=strategy,
            strategy_options={"max_fevals": budget},
            simulation_mode=True,
            cache=str(cache),
            quiet=True,
        )
    seen = {_key(row): {name: row[name] for name in choices} for row in found_in(found, choices)}
    return list(seen.values())


def found_in(found: Sequence[Any], choices: Settings) -> Iterator[Settings]:
    """The evaluations among the results, in order."""
    for row in found:
        if row:
            yield {name: row[name] for name in choices}


def _choices(rows: Rows) -> dict[str, list[Any]]:
    return {name: sorted({settings[name] for settings, _ in rows}) for name in rows[0][0]}


def _key(settings: Settings) -> str:
    return json.dumps(dict(settings), sort_keys=True)


def _cache(rows: Rows, choices: Mapping[str, list[Any]]) -> dict[str, Any]:
    """What kernel_tuner reads in simulation mode; times in milliseconds."""
    entries = {
        ",".join(str(settings[name]) for name in choices): {
            **settings,
            "time": us / 1e3,
            "times": [us / 1e3],
            "compile_time": 0.0,
            "verification_time": 0.0,
            "benchmark_time": 0.0,
            "strategy_time": 0.0,
            "framework_time": 0.0,
        }
        for settings, us in rows
    }
    return {
        "device_name": "table",
        "kernel_name": "table",
        "problem_size": [1],
        "tune_params_keys": list(choices),
        "tune_params": choices,
        "objective": "time",
        "cache": entries,
    }


@contextlib.contextmanager
def _quiet(place: str) -> Iterator[None]:
    """Without what it prints, and with what it writes in a folder that goes."""
    before = Path.cwd()
    os.chdir(place)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        os.chdir(before)
