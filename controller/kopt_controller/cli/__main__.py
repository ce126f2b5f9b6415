"""``python -m kopt_controller.cli``: the same as ``kopt``."""

from __future__ import annotations

import sys

from . import main

if __name__ == "__main__":
    sys.exit(main())
