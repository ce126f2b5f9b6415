"""Agents that are programs: started in a worktree of their own, watched line by line, and ended.

A ``Dialect`` knows the arguments of a program and the events that it prints as JSON lines; all
else is here: the worktree, the confinement, the limits, the retries, the session that goes on
after a kill. What the program says of its success decides nothing; its drafts are taken from the
worktree whatever it says.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import kopt_harness
from kopt_harness.environ import agent_environment
from kopt_harness.ledger import Ledger
from kopt_harness.proc import Completed, run
from kopt_harness.sandbox import confine
from kopt_harness.sandbox.launch import protected_paths, search_paths, shield

from ...agent_settings import AgentSettings
from ...budget import Budget
from ...costs import Allowance, Usage
from ...shown import counted
from ..protocol import AgentContext, AgentTask, Answer, Drafted, Ending, Question
from .broker import serving, tool_command
from .calls import CallLedger, with_data
from .charging import Account, beyond, left_of, tightest, uses_of
from .dialect import Call, Dialect, Observed, find_program, package_of
from .drafts import gather_drafts
from .prompt import Prompt, render, render_question
from .secrets import Secrets
from .watching import Limits, Place, Stopped, Watcher
from .worktree import Worktree, open_worktree

__all__ = ["ProgramWriter"]

_MOST_NOTES = 8
_MOST_LAST_LETTERS = 200
"""Of the last line that a program has printed on standard error."""
_PASSING: frozenset[Ending] = frozenset({"rate-limit", "server-error"})
"""Endings after which the same session may be tried once more."""


class ProgramWriter:
    """A program that writes code."""

    def __init__(self, dialect: Dialect, context: AgentContext) -> None:
        self.name = dialect.name
        self._dialect = dialect
        self._context = context

    def generate(self, task: AgentTask, ledger: Ledger) -> Drafted:
        """Drafts out of a worktree.

        Raises:
            UnavailableError: If the program is not on this machine.
        """
        call = CallLedger(ledger, Secrets(self._dialect.variables))
        kept = call.kept()
        if kept is not None:
            return kept
        prompt = call.prompt(lambda: render(task, "files"))
        with open_worktree(ledger, prompt, task, self._context.root / "skills") as tree:
            device_s = task.allowance.device_s if task.tools else None
            budget = Budget(tree.budget, device_s or 0.0)
            account = Account.of(self.name, task)
            talk = self._talk(call, tree, prompt, _Wish(account, task.model, budget=budget))
            with self._helpers(tree, budget, task):
                said = talk.until_it_ends(task.allowance)
            gathered = gather_drafts(tree.fd, task.drafts)
            whole = said.drafted._replace(
                drafts=gathered.drafts,
                notes=(*said.drafted.notes, *gathered.notes),
                refused=gathered.refused,
            )
            drafted = call.keep(whole)
            tree.remove()
        return drafted

    def ask(self, question: Question, ledger: Ledger) -> Answer:
        """An answer in words, in an empty worktree.

        Raises:
            UnavailableError: If the program is not on this machine.
        """
        call = CallLedger(ledger, Secrets(self._dialect.variables))
        kept = call.answered()
        if kept is None:
            prompt = call.prompt(lambda: render_question("question", question=question))
            account = Account(self.name, question.role, question.sub_agent)
            with open_worktree(ledger, prompt, None, None) as tree:
                wish = _Wish(account, question.model, tools=False)
                said = self._talk(call, tree, prompt, wish).until_it_ends(question.allowance)
                tree.remove()
            drafted = said.drafted
            answer = Answer(
                said.text, usage=drafted.usage, notes=drafted.notes, ending=drafted.ending
            )
            kept = call.keep_answer(answer)
        return with_data(question, kept)

    def _talk(self, call: CallLedger, tree: Worktree, prompt: Prompt, wish: _Wish) -> _Talk:
        return _Talk(_Parties(self._dialect, self._context, call, tree), prompt, wish)

    @contextmanager
    def _helpers(self, tree: Worktree, budget: Budget, task: AgentTask) -> Iterator[None]:
        if not task.tools:
            yield
            return
        with serving(tree, budget, tool_command(self._context.root, task.target)):
            yield


class _Wish(NamedTuple):
    """What is wanted of a program, and what for."""

    account: Account
    model: str | None
    tools: bool = True
    budget: Budget | None = None


class _Parties(NamedTuple):
    dialect: Dialect
    context: AgentContext
    call: CallLedger
    tree: Worktree


class _Said(NamedTuple):
    drafted: Drafted
    """Without drafts."""
    text: str


class _Attempt(NamedTuple):
    observed: Observed
    ending: Ending
    uses: list[Usage]
    notes: list[str]


class _Talk:
    """Attempts until one comes to its end, or nothing is left to try."""

    def __init__(self, parties: _Parties, prompt: Prompt, wish: _Wish) -> None:
        self._parties = parties
        self._settings: AgentSettings = parties.context.settings
        self._prompt = prompt
        self._wish = wish

    def until_it_ends(self, allowance: Allowance) -> _Said:
        settings, parties = self._settings, self._parties
        limits_s = (settings.timeout_s, allowance.wall_s)
        deadline = time.monotonic() + (tightest(*limits_s) or 0.0)
        uses: list[Usage] = []
        notes: list[str] = []
        text = ""
        for tried in range(settings.attempts):
            session = _session_of(parties)
            number = parties.call.start()
            timeout_s = max(deadline - time.monotonic(), 0.1)
            attempt = self._attempt(number, session, left_of(allowance, uses), timeout_s)
            uses += attempt.uses
            notes += attempt.notes
            text = attempt.observed.text or text
            if attempt.observed.is_stale and session is not None:
                parties.call.note_session(number, "", "")
                continue
            wait_s = _wait_s(settings, tried, attempt.observed)
            if attempt.ending not in _PASSING or time.monotonic() + wait_s >= deadline:
                break
            if tried + 1 < settings.attempts:
                time.sleep(wait_s)
        drafted = Drafted(
            drafts=(),
            usage=tuple(uses),
            notes=tuple(dict.fromkeys(notes)),
            ending=attempt.ending,
            session=attempt.observed.session,
        )
        return _Said(drafted, text)

    def _attempt(
        self, number: int, session: str | None, left: Allowance, timeout_s: float
    ) -> _Attempt:
        dialect, _, call, tree = self._parties
        account, budget = self._wish.account, self._wish.budget
        place = Place(number, tree.top, account)
        watcher = Watcher(call, place, dialect, Limits(self._settings, left))
        before_s = 0.0 if budget is None else budget.spent_s()
        done, status = self._run(session, left, timeout_s, watcher)
        observed, stopped = watcher.end(done)
        if stopped is None and observed.ending is None and done.returncode < 0:
            observed.ending = "killed"
            observed.problems.append(f"it was ended by signal {-done.returncode}")
        dialect.finish(done, observed)
        if dialect.cumulative and session is not None:
            observed.final = beyond(observed.final, call.spent_in(session))
        device_s = 0.0 if budget is None else budget.spent_s() - before_s
        uses = uses_of(account, observed, self._settings, wall_s=done.seconds, device_s=device_s)
        call.note_usage(number, uses)
        ending = stopped.ending if stopped else observed.ending or "failed"
        last = call.redacted(_last_line(done.stderr))[:_MOST_LAST_LETTERS]
        notes = [*_notes(done, observed, stopped, last), *_confined(done, status, last)]
        return _Attempt(observed, ending, uses, [f"{account.agent}: {note}" for note in notes])

    def _run(
        self, session: str | None, left: Allowance, timeout_s: float, watcher: Watcher
    ) -> tuple[Completed, dict[str, Any]]:
        dialect, context, _, tree = self._parties
        program = find_program(dialect, self._settings)
        arguments = dialect.command(
            Call(
                session=session,
                model=self._wish.model or self._settings.model,
                max_turns=self._settings.max_turns,
                max_dollars=tightest(self._settings.max_dollars, left.dollars),
                tools=self._wish.tools,
                work=tree.work,
                extra=self._settings.arguments,
            )
        )
        text = self._prompt.text if session is None else render_question("continue").text
        environment = agent_environment(tree.home, dialect.variables)
        environment |= dialect.environment(tree.home)
        spec_fd = confine.Confinement(
            writable=(str(tree.work), str(tree.home)),
            readable=(*package_of(program), *_expanded(self._settings.readable)),
            search=search_paths(environment),
            protected=protected_paths([context.root]),
        ).to_file()
        status_fd = os.memfd_create("kopt-confined", os.MFD_CLOEXEC)
        # It has the same user, and Landlock is not everywhere.
        shield()
        # For the launcher alone, which does not hand it on.
        environment["PYTHONPATH"] = str(Path(kopt_harness.__file__).resolve().parents[1])
        try:
            done = run(
                confine.command(spec_fd, status_fd, [str(program), *arguments]),
                timeout_s=timeout_s,
                cwd=tree.work,
                env=environment,
                stdin=text.encode(),
                pass_fds=(spec_fd, status_fd),
                ask_first=True,
                watch=watcher.feed,
            )
            return done, confine.read_status(status_fd)
        finally:
            os.close(spec_fd)
            os.close(status_fd)


def _expanded(paths: Sequence[str]) -> list[str]:
    return [str(Path(path).expanduser().absolute()) for path in paths]


def _session_of(parties: _Parties) -> str | None:
    """The session to go on with: programs find one only from the folder that it was begun in."""
    found = parties.call.session()
    is_here = found is not None and found["path"] == str(parties.tree.top)
    return found["session"] if found is not None and is_here else None


def _notes(
    done: Completed, observed: Observed, stopped: Stopped | None, last: str
) -> Sequence[str]:
    notes = observed.problems[:_MOST_NOTES]
    if stopped is not None:
        notes.append(stopped.why)
    elif observed.ending is None:
        said = f": {last}" if last else ""
        notes.append(f"it ended with exit code {done.returncode} and did not say how{said}")
    for tool, count in sorted(observed.denied.items())[:_MOST_NOTES]:
        notes.append(f"it wanted {tool}, which it may not use, {counted(count, 'time')}")
    if observed.unread:
        are = "is no event" if observed.unread == 1 else "are no event"
        notes.append(f"{counted(observed.unread, 'line')} of its output {are}")
    if observed.dropped:
        notes.append(f"numbers that cannot be were not counted: {', '.join(observed.dropped)}")
    return notes


def _confined(done: Completed, status: dict[str, Any], last: str) -> list[str]:
    if not status:
        return [f"it could not be started: {last or done.returncode}"]
    if not status.get("landlock"):
        return [f"it ran unconfined, without Landlock: {status.get('landlock_reason')}"]
    if not status.get("no_capabilities"):
        return [f"it kept the capabilities of kopt: {status.get('no_capabilities_reason')}"]
    return []


def _last_line(stderr: str) -> str:
    return next((line.strip() for line in reversed(stderr.splitlines()) if line.strip()), "")


def _wait_s(settings: AgentSettings, tried: int, observed: Observed) -> float:
    return settings.wait_s * 2**tried if observed.wait_s is None else observed.wait_s
