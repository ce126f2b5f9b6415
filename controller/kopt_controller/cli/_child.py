"""One ``kopt`` command for another process of kopt; it ends when that one does.

python -m kopt_controller.cli._child PID ARGUMENTS...
"""

from __future__ import annotations

import sys

from kopt_harness.sandbox import die_with_parent

from . import main

if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    raise SystemExit(main(sys.argv[2:]))
