"""Runs one driver many times, each run in a process of its own that has imported it already.

Importing takes longer than most runs. A request is a line of JSON on standard input: the driver's
arguments, the file that gets what it prints, and the seconds it may take. The answer is a line with
the exit status, negative for a signal.

    python serving.py DRIVER
"""

import json
import os
import signal
import sys
import traceback
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import NoReturn

__all__ = ["main"]


def main() -> None:
    """Answers until standard input ends."""
    driver = _load(Path(sys.argv[1]))
    for line in sys.stdin:
        words, output, seconds = json.loads(line)
        child = os.fork()
        if child == 0:
            _run(driver, words, output, seconds)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _load(path: Path) -> ModuleType:
    spec = spec_from_file_location("driver", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _run(driver: ModuleType, words: list[str], output: str, seconds: int) -> NoReturn:
    signal.alarm(seconds)
    place = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for descriptor in (1, 2):
        os.dup2(place, descriptor)
    status = 1
    try:
        status = driver.main(words)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    finally:  # whatever it was: a process that is a copy must not go on as its original
        if sys.exc_info()[1] is not None:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
