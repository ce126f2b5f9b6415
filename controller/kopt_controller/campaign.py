"""Starting a run, and continuing one: puts the parts of a campaign together for the loop.

A run's manifest holds everything that the loop starts from (configuration, incumbent, memory,
seeds), so ``resume`` needs nothing but the run's folder and the same kernels folder.
"""

from __future__ import annotations

import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, NamedTuple

from kopt_harness.archive import Archive, Run
from kopt_harness.catalog import Catalog
from kopt_harness.errors import (
    InfraError,
    InterruptedRunError,
    InvalidInputError,
    KoptError,
    NotFoundError,
)
from kopt_harness.journal import Journal, read_journal
from kopt_harness.root import Root
from kopt_harness.schema import Model
from kopt_harness.targets import Target, best_target, get_target
from pydantic import ValidationError

from .agents import Agent, Writer, get_agent
from .agents.writing import SeveralAgents
from .choosing import check_ladder
from .config import PromotionMode, RunConfig
from .costs import Limits, check_limits
from .directions import load_directions
from .harness import Harness, check_profiler
from .kinds import CAMPAIGN, FINISHED_KEY
from .loop import run_rounds
from .memory import Memory, gather
from .metering import COSTS_FILE, Meter, MeteredHarness
from .policies import SearchContext, SearchPolicy, check_search, get_search
from .policy import get_policy
from .promotion import Promoter
from .provenance import versions
from .representing import floors_of, regrouped, representatives_of
from .result import CandidateRef, RoundResult
from .seating import agent_context, require_ready
from .steering import STEER_FILE, read_steers
from .world import Seat, World

__all__ = [
    "Campaign",
    "CampaignResult",
    "Manifest",
    "interruptible",
    "is_finished",
    "lazy_harness",
    "open_campaign",
    "parse_manifest",
    "read_manifest",
    "start_campaign",
]

BY_REGIME = ("rep",)
"""Selectors of the gate that leave it to kopt what represents a regime."""

MakeHarness = Callable[[Target, RunConfig], Harness]


class Manifest(Model):
    """What a run was started with."""

    schema_: int = 1
    kind: Literal["campaign"]
    run: str
    created: str
    definition: str
    target: str
    config: RunConfig
    mode: PromotionMode
    """``auto`` or ``ask``: the configuration's, else the agent's own."""
    search_seed: int
    incumbent: CandidateRef
    """Its bytes are in the archive."""
    memory: Memory
    """What was known before the run."""
    versions: dict[str, str] = {}
    """Of what chose; what measured is noted in the journal."""
    first_round: int = 1
    """Number of its first round; higher where a round is run again."""
    rerun_of: str | None = None
    """``RUN/ROUND``, where it runs a round again."""
    search: dict[str, Any] = {}
    """What the search policy starts from."""


class CampaignResult(NamedTuple):
    """What ``kopt round`` and ``kopt resume`` report."""

    run: str
    rounds: tuple[RoundResult, ...]

    def document(self) -> dict[str, Any]:
        """The JSON of DESIGN section 7."""
        return {"run": self.run, "rounds": [result.document() for result in self.rounds]}


class Campaign(NamedTuple):
    """A run, ready to be run or continued."""

    run: Run
    manifest: Manifest
    catalog: Catalog
    archive: Archive
    make_harness: MakeHarness
    notify: Callable[[str], None]
    adapt: Callable[[World], World] | None = None
    """Gives another world to run in, for experiments with parts of the loop."""
    limits: Limits | None = None
    """What it may spend from now on; null: what its configuration says."""

    def execute(self) -> CampaignResult:
        """Runs what is left of the rounds.

        Raises:
            InterruptedRunError: After Ctrl-C or a termination signal; the journal is safe.
            UsageError: If another process runs it.
        """
        with (
            Journal(self.run.journal_path) as journal,
            Journal(self.run.folder / COSTS_FILE) as costs,
            lazy_harness(self._new_harness) as harness,
        ):
            limits = self.limits or self.manifest.config.limits
            meter = Meter(journal, costs, limits, f"kopt resume {self.run.id}")
            return self._execute(journal, harness, meter)

    def _execute(
        self, journal: Journal, harness: Callable[[], Harness], meter: Meter
    ) -> CampaignResult:
        session = _Session(journal)

        def measured() -> Harness:
            made = harness()
            session.note(made.environment)
            return MeteredHarness(made, meter)

        made = replace(self._world(journal, measured), meter=meter)
        world = made if self.adapt is None else self.adapt(made)
        incumbent = self.archive.get(self.manifest.incumbent.sha256).model_copy(
            update={"name": self.manifest.incumbent.name}
        )
        with interruptible(f"the run {self.run.id}", f"kopt resume {self.run.id}"):
            rounds = tuple(
                run_rounds(
                    world,
                    incumbent,
                    self.manifest.memory,
                    self.manifest.config.rounds,
                    self.manifest.first_round,
                    search=self._search(),
                )
            )
        if journal.get(FINISHED_KEY) is None:
            journal.put(FINISHED_KEY, {"rounds": len(rounds)})
        return CampaignResult(self.run.id, rounds)

    def _search(self) -> SearchPolicy:
        config = self.manifest.config
        return get_search(config.policy).create(
            SearchContext(
                config=config,
                seed=self.manifest.search_seed,
                start=self.manifest.search,
                folder=self.run.folder,
            )
        )

    def _new_harness(self) -> Harness:
        return self.make_harness(get_target(self.manifest.target), self.manifest.config)

    def _world(self, journal: Journal, harness: Callable[[], Harness]) -> World:
        config, catalog = self.manifest.config, self.catalog
        definition = catalog.resolve_exact(self.manifest.definition)
        target = get_target(self.manifest.target)
        promoter = Promoter(
            catalog,
            definition,
            target.name,
            journal=journal,
            floors=floors_of(catalog, definition, target),
        )
        start = time.monotonic()
        by_regime = config.gate_workloads == BY_REGIME

        def seat(name: str) -> Seat:
            factory = get_agent(name)
            require_ready(name, factory, config)
            agent: Agent = factory.create(agent_context(catalog, definition, target, config, name))
            if factory.writer is not None and config.sub_agents > 1:
                agent = SeveralAgents(agent, config.sub_agents)
            return Seat(agent, config.promotion or factory.promotion)

        def write(name: str) -> Writer | None:
            factory = get_agent(name)
            if factory.writer is None:
                return None
            require_ready(name, factory, config)
            return factory.writer(agent_context(catalog, definition, target, config, name))

        return World(
            run=self.run.id,
            definition=definition,
            target=target.name,
            workloads=catalog.workloads(definition),
            sweep_workloads=catalog.select(definition, config.sweep_workloads),
            representatives=representatives_of(catalog, definition, target, config.gate_workloads),
            harness=harness,
            agent=seat(config.agent).agent,
            policy=get_policy(config.ranking),
            directions=load_directions(),
            solutions=self.archive,
            ledger=journal,
            mode=self.manifest.mode,
            promote=promoter.apply,
            max_candidates=config.candidates_on(target.kind),
            search_seed=self.manifest.search_seed,
            public_seed=config.measure.seed,
            rules=config.conditions,
            notify=self.notify,
            refuse_duplicates=config.refuse_duplicates,
            may_start=lambda steered: _within(steered or config.budget_s, start),
            steers=lambda: read_steers(self.run.folder / STEER_FILE),
            seat=seat,
            regroup=partial(regrouped, catalog, definition, target) if by_regime else None,
            ladder=config.ladder,
            writer=write(config.planner or config.agent),
            reviewer=None if config.reviewer is None else write(config.reviewer),
            debaters=tuple(side for name in config.debaters if (side := write(name)) is not None),
        )


def start_campaign(
    root: Root,
    definition_name: str,
    config: RunConfig,
    make_harness: MakeHarness,
    notify: Callable[[str], None],
    *,
    memory: Memory | None = None,
) -> Campaign:
    """A new run; nothing is measured yet.

    Args:
        root: Where definitions and the archive are.
        definition_name: Alias, id, or unambiguous prefix.
        config: What the campaign does.
        make_harness: Makes what measures.
        notify: Gets progress.
        memory: To begin with; None: that of the archive.

    Raises:
        NotFoundError: If the definition, target or agent does not exist, or nothing is
            retained that a candidate could be compared with.
        InvalidInputError: If a selector or a scripted solution cannot be used.
    """
    catalog, archive = Catalog(root), Archive(root.local)
    definition = catalog.resolve(definition_name)
    target = best_target() if config.target is None else get_target(config.target)
    factory, _ = get_agent(config.agent), get_policy(config.ranking)
    search = get_search(config.policy)
    check_search(config)
    check_limits(config.limits.model_dump())
    check_ladder(config.ladder)
    check_profiler(config.profiler)
    catalog.select(definition, (*config.gate_workloads, *config.sweep_workloads))
    require_ready(config.agent, factory, config)
    factory.create(agent_context(catalog, definition, target, config, config.agent))
    incumbent = catalog.incumbent(definition, target.name)
    if incumbent is None:
        raise NotFoundError(
            f"{definition.name} has no incumbent for the target {target.name!r}",
            hint=f"name one in {catalog.folder(definition) / 'retained.toml'}: "
            f'[{target.name}] solution = "NAME"',
        )
    archive.put(incumbent)
    known = gather(archive, definition.name, target.name) if memory is None else memory
    manifest = {
        "kind": CAMPAIGN,
        "definition": definition.name,
        "target": target.name,
        "config": config.model_dump(mode="json"),
        "mode": config.promotion or factory.promotion,
        "search_seed": _search_seed(config),
        "incumbent": {"name": incumbent.name, "sha256": incumbent.sha256},
        "versions": versions(load_directions(), catalog.folder(definition)),
        "memory": known.model_dump(mode="json"),
        "search": search.start(config, archive, definition.name),
    }
    run = archive.create_run(f"{definition.kopt.alias}-{target.name}", manifest)
    return Campaign(run, read_manifest(run), catalog, archive, make_harness, notify)


def open_campaign(
    root: Root,
    run_id: str | None,
    make_harness: MakeHarness,
    notify: Callable[[str], None],
    limits: Mapping[str, float | None] | None = None,
) -> Campaign:
    """A run that was started before.

    Args:
        root: Where it was started.
        run_id: Its id or an unambiguous part; None: the latest that is not finished.
        make_harness: As when it was started.
        notify: Gets progress.
        limits: Fields of ``Limits`` that are other ones from now on; None is unchanged.

    Raises:
        NotFoundError: If there is no such run.
        InvalidInputError: If a limit is 0.
    """
    check_limits(limits or {})
    archive = Archive(root.local)
    run = archive.run(run_id) if run_id is not None else _latest_unfinished(archive)
    manifest = read_manifest(run)
    given = {name: value for name, value in (limits or {}).items() if value is not None}
    campaign = Campaign(run, manifest, Catalog(root), archive, make_harness, notify)
    return campaign._replace(limits=manifest.config.limits.model_copy(update=given))


def read_manifest(run: Run) -> Manifest:
    """The manifest of a campaign.

    Raises:
        InvalidInputError: If it cannot be read, or is not that of a campaign.
    """
    return parse_manifest(run.id, run.manifest())


def parse_manifest(run_id: str, document: Mapping[str, Any]) -> Manifest:
    """The manifest of a campaign out of its document.

    Raises:
        InvalidInputError: If it is not that of a campaign.
    """
    data = dict(document)
    data["schema_"] = data.pop("schema")
    try:
        return Manifest.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidInputError(
            f"the run {run_id!r} is no campaign: {'.'.join(map(str, first['loc']))}: "
            f"{first['msg']}",
            hint="kopt history lists the runs",
        ) from error


@contextmanager
def interruptible(what: str, go_on: str) -> Iterator[None]:
    """Turns Ctrl-C, SIGTERM and SIGHUP into an error that says how to go on.

    The journal needs no saving: every record in it is complete. Machine failures get the
    same hint, since what was measured before them is kept.

    Args:
        what: Subject of the message.
        go_on: The command that continues.
    """
    hint = f"continue with: {go_on}"

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    signals = (signal.SIGTERM, signal.SIGHUP)
    # Only the main thread may set handlers; elsewhere the caller's handlers stay.
    in_main = threading.current_thread() is threading.main_thread()
    before = {each: signal.signal(each, stop) for each in signals} if in_main else {}
    try:
        yield
    except KeyboardInterrupt as error:
        raise InterruptedRunError(f"{what} was interrupted", hint=hint) from error
    except InfraError as error:
        raise InfraError(error.message, hint=f"{error.hint}; then {hint}") from error
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


class _Session:
    """Notes in the journal once in each process what was measured with."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._noted = False

    def note(self, environment: dict[str, Any]) -> None:
        if self._noted:
            return
        number = sum(key.startswith("session/") for key in self._journal.completed())
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._journal.put(f"session/{number}", {"time": now, "environment": environment})
        self._noted = True


@contextmanager
def lazy_harness(make: Callable[[], Harness]) -> Iterator[Callable[[], Harness]]:
    """A harness that is made when it is first asked for, and closed at the end."""
    made: list[Harness] = []

    def get() -> Harness:
        if not made:
            made.append(make())
        return made[0]

    try:
        yield get
    finally:
        for harness in made:
            harness.close()


def _within(budget_s: float | None, start: float) -> bool:
    return budget_s is None or time.monotonic() - start < budget_s


def _search_seed(config: RunConfig) -> int:
    if config.search_seed is not None:
        return config.search_seed
    return secrets.randbits(32) if config.measure.seed is None else config.measure.seed


def _latest_unfinished(archive: Archive) -> Run:
    for run in reversed(archive.runs()):
        try:
            read_manifest(run)
            if not is_finished(run):
                return run
        except KoptError:
            # Runs of other commands, and damaged ones, are not offered; history names them.
            continue
    raise NotFoundError(
        "no run is waiting to be resumed", hint="kopt history lists all; kopt round starts one"
    )


def is_finished(run: Run) -> bool:
    """Whether the run came to its end."""
    return any(record.key == FINISHED_KEY for record in read_journal(run.journal_path))
