#!/usr/bin/env python3
"""Stands in for the programs claude and codex: speaks their events, and does what a script says.

A copy of this file is the program; ``SCRIPTS`` is replaced by a list with one script for each
time that it is started, the last one for all that follow. A script is a list of steps, each a
list of a name and its arguments; see the methods of ``Stand``. Nothing of kopt is imported.
"""

# A copy of it is a program that stands alone and prints events.
# ruff: noqa: ANN003, ANN201, ANN204, ANN205, PTH103, PTH109, PTH110, PTH118, PTH119, PTH120, PTH123, PTH211, T201
import json
import os
import subprocess
import sys
import time
import uuid

SCRIPTS = []
"""Replaced in a copy."""

HOME = os.environ.get("HOME", ".")


def emit(event):
    """One event, at once."""
    print(json.dumps(event), flush=True)


class Stand:
    """What both programs can be told to do."""

    def __init__(self, session, model):
        self.session = session
        self.model = model
        self.used = [0, 0, 0]
        self.dollars = 0.0
        self.denied = []
        self.number = 0

    def write(self, path, content):
        """A file, below the working directory or anywhere; what is refused is said."""
        try:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(content)
        except OSError as error:
            self.say(f"cannot write {path}: {error}")

    def append(self, path, content):
        """The same at the end of a file."""
        try:
            with open(path, "a", encoding="utf-8") as stream:
                stream.write(content)
        except OSError as error:
            self.say(f"cannot write {path}: {error}")

    def link(self, path, target):
        """A symbolic link."""
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        os.symlink(target, path)

    def hard(self, path, target):
        """A hard link."""
        try:
            os.link(target, path)
        except OSError as error:
            self.say(f"cannot link {target}: {error}")

    def pipe(self, path):
        """A named pipe: whoever reads it as a file waits for ever."""
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        os.mkfifo(path)

    def steal(self, path, into):
        """What another file says, put into a file of its own."""
        try:
            with open(path, encoding="utf-8", errors="replace") as stream:
                found = stream.read()
        except OSError as error:
            found = f"refused: {error.strerror}"
        self.write(into, found)

    def environment(self, into):
        """Its own environment."""
        self.write(into, json.dumps(dict(os.environ)))

    def signal(self, into):
        """Whether it could end its parent, which is kopt: signal 0 asks and does nothing."""
        try:
            os.kill(os.getppid(), 0)
            self.write(into, "allowed")
        except OSError as error:
            self.write(into, f"refused: {error.strerror}")

    def run(self, words, into=""):
        """A command; its output may be kept."""
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if into:
            self.write(into, json.dumps({"code": done.returncode, "out": done.stdout}))

    def sleep(self, seconds):
        """Nothing for a while."""
        time.sleep(seconds)

    def raw(self, line):
        """A line that is no event."""
        print(line, flush=True)

    def error(self, text, code):
        """Ends on standard error."""
        print(text, file=sys.stderr, flush=True)
        sys.exit(code)


class Claude(Stand):
    """``claude -p --output-format stream-json --verbose``."""

    def begin(self):
        """The first event."""
        emit(
            {
                "type": "system",
                "subtype": "init",
                "cwd": os.getcwd(),
                "session_id": self.session,
                "tools": ["Read", "Write", "Bash"],
                "mcp_servers": [],
                "model": self.model,
                "permissionMode": "acceptEdits",
                "apiKeySource": "ANTHROPIC_API_KEY",
                "claude_code_version": "2.1.0",
                "uuid": str(uuid.uuid4()),
            }
        )

    def say(self, text):
        """A turn without tokens."""
        self.turn([0, 0, 0], text)

    def turn(self, tokens, text="", sub=False, model=None):
        """One answer of the model: tokens read, out of the cache, written."""
        self.number += 1
        if not sub:
            self.used = [a + b for a, b in zip(self.used, tokens, strict=True)]
        usage = {
            "input_tokens": tokens[0],
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": tokens[1],
            "output_tokens": tokens[2],
        }
        content = [{"type": "text", "text": text}] if text else []
        content.append(
            {"type": "tool_use", "id": f"toolu_{self.number}", "name": "Write", "input": {}}
        )
        for block in content:
            emit(
                {
                    "type": "assistant",
                    "message": {
                        "id": f"msg_{self.number}",
                        "type": "message",
                        "role": "assistant",
                        "model": model or self.model,
                        "content": [block],
                        "stop_reason": None,
                        "usage": usage,
                    },
                    "parent_tool_use_id": "toolu_0" if sub else None,
                    "session_id": self.session,
                    "uuid": str(uuid.uuid4()),
                }
            )

    def deny(self, tool):
        """A tool that it was not allowed."""
        self.denied.append({"tool_name": tool, "tool_use_id": "toolu_9", "tool_input": {}})

    def limited(self, resets_in_s):
        """The rate limit is reached: what is printed before the end."""
        emit(
            {
                "type": "rate_limit_event",
                "rate_limit_info": {
                    "status": "rejected",
                    "resetsAt": time.time() + resets_in_s,
                    "rateLimitType": "five_hour",
                },
                "session_id": self.session,
            }
        )

    def refuse(self):
        """The model does not want to."""
        emit(
            {
                "type": "assistant",
                "message": {
                    "id": "msg_r",
                    "role": "assistant",
                    "model": self.model,
                    "content": [{"type": "text", "text": "I cannot help with that."}],
                    "stop_reason": "refusal",
                    "usage": {"input_tokens": 5, "output_tokens": 5},
                },
                "parent_tool_use_id": None,
                "session_id": self.session,
            }
        )

    def end(self, subtype="success", dollars=0.0, text="done", is_error=False, status=None, **more):
        """The last event, with what was used in this process."""
        models = {
            self.model: {
                "inputTokens": self.used[0],
                "cacheReadInputTokens": self.used[1],
                "cacheCreationInputTokens": 0,
                "outputTokens": self.used[2],
                "webSearchRequests": 0,
                "costUSD": dollars,
                "contextWindow": 200000,
            }
        }
        models.update(more.get("models", {}))
        event = {
            "type": "result",
            "subtype": subtype,
            "is_error": is_error,
            "duration_ms": 10,
            "duration_api_ms": 5,
            "num_turns": self.number,
            "session_id": self.session,
            "total_cost_usd": dollars,
            "usage": {
                "input_tokens": self.used[0],
                "cache_read_input_tokens": self.used[1],
                "cache_creation_input_tokens": 0,
                "output_tokens": self.used[2],
            },
            "modelUsage": models,
            "permission_denials": self.denied,
        }
        if subtype == "success":
            event["result"] = text
        else:
            event["errors"] = [text]
        if status is not None:
            event["api_error_status"] = status
        emit(event)
        sys.exit(1 if is_error else 0)

    @staticmethod
    def lost(session):
        """A session that is not there."""
        text = f"No conversation found with session ID: {session}"
        emit(
            {
                "type": "result",
                "subtype": "error_during_execution",
                "is_error": True,
                "num_turns": 0,
                "session_id": session,
                "total_cost_usd": 0,
                "errors": [text],
            }
        )
        print(text, file=sys.stderr)
        sys.exit(1)


class Codex(Stand):
    """``codex exec --json``: what was used is said for the whole thread."""

    def begin(self):
        """The first events."""
        emit({"type": "thread.started", "thread_id": self.session})
        emit({"type": "turn.started"})

    def say(self, text):
        """A message."""
        self.item({"type": "agent_message", "text": text})

    def item(self, item):
        """An item that is complete."""
        emit({"type": "item.completed", "item": {"id": f"item_{self.number}", **item}})
        self.number += 1

    def turn(self, tokens, text=""):
        """An answer; its tokens show at the end of the turn only."""
        self.used = [a + b for a, b in zip(self.used, tokens, strict=True)]
        keep(self.session, self.used)
        self.item({"type": "agent_message", "text": text})

    def deny(self, what):
        """A command that its sandbox declined."""
        self.item(
            {
                "type": "command_execution",
                "command": what,
                "aggregated_output": "",
                "exit_code": None,
                "status": "declined",
            }
        )

    def problem(self, message):
        """Something that it gets over by itself."""
        emit({"type": "error", "message": message})

    def fail(self, message):
        """The turn failed."""
        emit({"type": "turn.failed", "error": {"message": message}})
        sys.exit(1)

    def end(self):
        """The turn is complete."""
        emit(
            {
                "type": "turn.completed",
                "usage": {
                    "input_tokens": self.used[0] + self.used[1],
                    "cached_input_tokens": self.used[1],
                    "output_tokens": self.used[2],
                },
            }
        )
        sys.exit(0)

    @staticmethod
    def lost(session):
        """A thread that is not there."""
        print(f"Error: no rollout found for thread id {session}", file=sys.stderr)
        sys.exit(1)


def known():
    """Sessions that this home has seen, with their tokens."""
    try:
        with open(os.path.join(HOME, "sessions.json"), encoding="utf-8") as stream:
            return json.load(stream)
    except FileNotFoundError:
        return {}


def keep(session, used):
    """Notes a session."""
    found = known()
    found[session] = used
    with open(os.path.join(HOME, "sessions.json"), "w", encoding="utf-8") as stream:
        json.dump(found, stream)


def main():
    """Plays the script of this start."""
    words = sys.argv[1:]
    if "--version" in words:
        print("2.1.0 (stand-in)")
        return
    prompt = sys.stdin.read()
    is_claude = os.path.basename(sys.argv[0]).startswith("claude")
    kind = Claude if is_claude else Codex
    mark = "--resume" if is_claude else "resume"
    asked = words[words.index(mark) + 1] if mark in words else None
    sessions = known()
    if asked is not None and asked not in sessions:
        kind.lost(asked)
    flag = "--model" if is_claude else "-m"
    model = words[words.index(flag) + 1] if flag in words else "stand-in-1"
    stand = kind(asked or str(uuid.uuid4()), model)
    if not is_claude and asked is not None:
        stand.used = sessions[asked]
    keep(stand.session, stand.used)
    path = os.path.join(HOME, "starts.json")
    starts = []
    if os.path.exists(path):
        with open(path, encoding="utf-8") as stream:
            starts = json.load(stream)
    starts.append({"argv": words, "prompt": prompt})
    with open(path, "w", encoding="utf-8") as stream:
        json.dump(starts, stream)
    stand.begin()
    script = SCRIPTS[min(len(starts), len(SCRIPTS)) - 1]
    for name, *arguments in script:
        options = arguments.pop() if arguments and isinstance(arguments[-1], dict) else {}
        if name == "item":
            stand.item(options)
        else:
            getattr(stand, name)(*arguments, **options)


if __name__ == "__main__":
    main()
