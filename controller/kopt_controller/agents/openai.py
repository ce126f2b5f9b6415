"""Any endpoint that speaks the chat completions of OpenAI, through the ``openai`` package.

Answers are streamed and asked for as JSON by a schema; what comes back broken, fenced or cut off is
repaired or asked for again. What is tried again depends on what went wrong: a rate limit after the
time that the other side names, a server error or a lost connection after a growing pause, a refusal
or a wrong key never. The key comes from the environment and is written nowhere.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from typing import Any

from kopt_harness.environ import variable
from kopt_harness.errors import UnavailableError
from kopt_harness.ledger import Ledger

from ..agent_settings import AgentSettings
from ..costs import Allowance
from .protocol import (
    AgentContext,
    AgentFactory,
    AgentTask,
    Answer,
    Draft,
    Drafted,
    Ending,
    Question,
)
from .writing import (
    DRAFTS_SCHEMA,
    Account,
    CallLedger,
    Secrets,
    WritingAgent,
    drafts_of,
    read_json,
    render,
    render_question,
)
from .writing.calls import with_data
from .writing.chat import KEY_ENV, PACKAGE_HINT, ChatError, Talk, open_line

__all__ = ["AGENT", "OpenAIWriter"]

_MOST_REPAIRS = 1


class OpenAIWriter:
    """A model behind an endpoint."""

    name = "openai"

    def __init__(self, context: AgentContext) -> None:
        self._settings = context.settings

    def generate(self, task: AgentTask, ledger: Ledger) -> Drafted:
        """Drafts out of an answer.

        Raises:
            UnavailableError: If the package, the key or the name of a model is missing.
        """
        call = CallLedger(ledger, self._secrets())
        kept = call.kept()
        if kept is not None:
            return kept
        prompt = call.prompt(lambda: render(task, "json"))
        talk = self._talk(call, Account.of(self.name, task), task.model, task.allowance)
        ending: Ending = "done"
        drafts: tuple[Draft, ...] = ()
        refused: tuple[str, ...] = ()
        try:
            for _ in range(1 + _MOST_REPAIRS):
                piece = talk.say(prompt.text, DRAFTS_SCHEMA)
                found = read_json(piece.text)
                if found is not None:
                    cut = found.truncated or piece.finish == "length"
                    gathered = drafts_of(found.value, task.drafts, truncated=cut)
                    talk.notes += (f"openai: forgiven: {each}" for each in found.repairs)
                    talk.notes += gathered.notes
                    drafts, refused = gathered.drafts, gathered.refused
                if drafts:
                    break
                ending = "broken"
                problem = "it is no JSON object"
                if found is not None:
                    problem = ": ".join(["it has no usable draft", *refused[:1]])
                talk.notes.append(f"openai: an answer could not be used: {problem}")
                prompt = render_question("unreadable", problem=problem)
            ending = "done" if drafts else ending
        except ChatError as error:
            ending = error.ending
            talk.notes.append(f"openai: {error}")
        uses, notes = tuple(talk.uses), tuple(dict.fromkeys(talk.notes))
        return call.keep(Drafted(drafts, uses, notes, ending, refused=refused))

    def ask(self, question: Question, ledger: Ledger) -> Answer:
        """An answer in words.

        Raises:
            UnavailableError: If the package, the key or the name of a model is missing.
        """
        call = CallLedger(ledger, self._secrets())
        kept = call.answered()
        if kept is None:
            prompt = call.prompt(lambda: render_question("question", question=question))
            account = Account(self.name, question.role, question.sub_agent)
            talk = self._talk(call, account, question.model, question.allowance)
            text = ""
            ending: Ending = "done"
            try:
                text = talk.say(prompt.text, question.shape).text
            except ChatError as error:
                ending = error.ending
                talk.notes.append(f"openai: {error}")
            answer = Answer(text, usage=tuple(talk.uses), notes=tuple(talk.notes), ending=ending)
            kept = call.keep_answer(answer)
        return with_data(question, kept)

    def _secrets(self) -> Secrets:
        return Secrets([self._settings.key_env or KEY_ENV])

    def _talk(
        self, call: CallLedger, account: Account, model: str | None, allowance: Allowance
    ) -> Talk:
        chosen = model or self._settings.model
        if chosen is None:
            raise UnavailableError(
                "the agent 'openai' has no model", hint="name one with model in [agents.openai]"
            )
        return Talk(open_line(self._settings, chosen), call, account, allowance)


def _writer(context: AgentContext) -> OpenAIWriter:
    return OpenAIWriter(context)


def _create(context: AgentContext) -> WritingAgent:
    return WritingAgent(_writer(context), context)


def _status(settings: AgentSettings) -> dict[str, Any]:
    """Nothing is sent anywhere for it."""
    name = settings.key_env or KEY_ENV
    installed = importlib.util.find_spec("openai") is not None
    has_key = variable(name) is not None or (settings.base_url is not None and not settings.key_env)
    missing = [] if installed else [PACKAGE_HINT]
    missing += [] if settings.model else ["name a model: model in [agents.openai]"]
    missing += [] if has_key else [_no_key(settings, name)]
    return {
        "ok": not missing,
        "program": None,
        "version": importlib.metadata.version("openai") if installed else "",
        "key": name if variable(name) else None,
        "hint": "; ".join(missing),
    }


def _no_key(settings: AgentSettings, name: str) -> str:
    """What to do without a key; an endpoint of one's own needs none unless the settings say so."""
    wanted = f"set the key in {name}"
    if settings.base_url is not None:
        return wanted
    return f"{wanted}, or name an endpoint of your own: base_url in [agents.openai]"


AGENT = AgentFactory(
    create=_create, promotion="ask", writer=_writer, status=_status, says_cost=False
)
