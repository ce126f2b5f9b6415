"""Runs one kernel of those that do what hardware forbids; ends with what its launch returns."""

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

import emulator

HERE = Path(__file__).resolve().parent
SOLUTION = emulator.Solution(HERE / "wrong", HERE)


def main(words: Sequence[str] | None = None) -> int:
    """Runs the kernel."""
    parser = emulator.command_line(__doc__)
    parser.add_argument("kernel")
    parser.add_argument("--cluster", type=int, default=1)
    parser.add_argument("--bytes", type=int, default=1024)
    parser.add_argument("--asked", type=int, default=0)
    options = parser.parse_args(words)
    library = emulator.load_library(SOLUTION, options)
    status: int = library.run(
        options.kernel.encode(), options.cluster, options.bytes, options.asked
    )
    sys.stdout.write(f"status {status}\n")
    return 0 if status == 0 else 2
