"""Binary reports of Nsight Compute (``.ncu-rep``), read by its own software alone.

The ``ncu_report`` package of the installation reads them; where it is not, ``ncu --import``
turns them into CSV.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...environ import cuda_home
from ...errors import ProfileError, UnavailableError
from ...proc import run
from ..record import Launch, Metric, Recorded
from .ncu_csv import parse_csv
from .protocol import ProfileFile

__all__ = ["READER"]

_MAGIC = b"NVR\x00"
_TIMEOUT_S = 120.0
_PACKAGE = "ncu_report"
_INSTALLED = Path("/opt/nvidia/nsight-compute")
"""Where the package managers of NVIDIA put each version."""
_DIMS = ("launch__{}_dim_x", "launch__{}_dim_y", "launch__{}_dim_z")


class _Reader:
    name = "ncu-rep"

    def recognises(self, file: ProfileFile) -> bool:
        """By the first bytes, or the end of the name."""
        return file.data.startswith(_MAGIC) or file.path.suffix == ".ncu-rep"

    def read(self, file: ProfileFile) -> Recorded:
        """Every launch with all its metrics.

        Raises:
            UnavailableError: If neither ``ncu_report`` nor ``ncu`` is here.
            ProfileError: If they cannot read it.
        """
        program = _find_ncu()
        module = _find_package(program)
        if module is not None:
            return Recorded(tuple(_by_package(module, file.path)))
        if program is None:
            raise UnavailableError(
                f"{str(file.path)!r} needs ncu_report or ncu, and neither is here",
                hint="install Nsight Compute, or export it where it is: "
                "ncu --import FILE --page details > report.txt",
            )
        command = [program, "--import", str(file.path), "--csv", "--page", "raw"]
        done = run(command, timeout_s=_TIMEOUT_S)
        if not done.ok:
            last = (done.output.strip().splitlines() or ["it said nothing"])[-1]
            raise ProfileError(
                f"ncu cannot read {str(file.path)!r}: {last}",
                hint="use an Nsight Compute that is not older than the report",
            )
        return Recorded(tuple(parse_csv(done.stdout.split("\n"), str(file.path))))


def _find_ncu() -> str | None:
    home = cuda_home()
    in_toolkit = home / "bin" / "ncu" if home else None
    if in_toolkit is not None and in_toolkit.is_file():
        return str(in_toolkit)
    installed = sorted(_INSTALLED.glob("*/ncu"))
    return shutil.which("ncu") or (str(installed[-1]) if installed else None)


def _find_package(program: str | None) -> Any:
    """The module, from the path or beside ``ncu``; None where it is not or does not load."""
    folders = [""] if importlib.util.find_spec(_PACKAGE) else []
    if program is not None:
        above = Path(os.path.realpath(program)).parents
        folders += [str(p / "extras" / "python") for p in above[:4]]
    for folder in folders:
        if folder and not (Path(folder) / f"{_PACKAGE}.py").is_file():
            continue
        added = [folder] if folder else []
        sys.path[:0] = added
        try:
            return importlib.import_module(_PACKAGE)
        except (ImportError, OSError):  # its library was built for another Python or system
            continue
        finally:
            for entry in added:
                sys.path.remove(entry)
    return None


def _by_package(module: Any, path: Path) -> Iterator[Launch]:
    try:
        context = module.load_report(str(path))
        for i in range(context.num_ranges()):
            actions = context.range_by_idx(i)
            for j in range(actions.num_actions()):
                yield _launch(actions.action_by_idx(j))
    except (RuntimeError, ValueError, OSError) as error:
        raise ProfileError(
            f"ncu_report cannot read {str(path)!r}: {error}",
            hint="use an Nsight Compute that is not older than the report",
        ) from error


def _launch(action: Any) -> Launch:
    metrics = []
    for name in action.metric_names():
        metric = action.metric_by_name(name)
        value = None if metric is None else metric.value()
        if isinstance(value, int | float) and not isinstance(value, bool):
            metrics.append(Metric(name, metric.unit() or "", float(value)))
    known = {metric.name: metric.value for metric in metrics}
    grid, block = (
        tuple(int(known.get(dim.format(what), 0)) for dim in _DIMS) for what in ("grid", "block")
    )
    return Launch(
        name=action.name(),
        grid=(grid[0], grid[1], grid[2]) if all(grid) else None,
        block=(block[0], block[1], block[2]) if all(block) else None,
        metrics=tuple(metrics),
    )


READER = _Reader()
