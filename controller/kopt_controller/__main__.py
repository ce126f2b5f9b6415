"""``python -m kopt_controller`` is ``kopt``, for a checkout that is not installed."""

from __future__ import annotations

import sys

from kopt_controller.cli import main

if __name__ == "__main__":
    sys.exit(main())
