"""Where definitions, solutions and the archive are.

``find_root`` takes the first of: an explicit folder, the nearest parent of the working
directory with a ``kernels/`` folder, ``$KOPT_ROOT``, the checkout that kopt is installed from.
So kopt works from inside its own checkout with nothing set, and from inside anybody else's
repository with ``--root`` or ``$KOPT_ROOT``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .environ import kopt_root
from .errors import NotFoundError

__all__ = ["Root", "find_root"]


@dataclass(frozen=True)
class Root:
    """A folder with ``kernels/`` in it, and how it was found."""

    path: Path
    """Absolute."""
    found_by: str = "--root"
    """For messages: ``--root``, ``parent folder``, ``$KOPT_ROOT`` or ``checkout``."""

    @property
    def kernels(self) -> Path:
        """Definitions and their solutions, one folder each."""
        return self.path / "kernels"

    @property
    def configs(self) -> Path:
        """Run configurations."""
        return self.path / "configs"

    @property
    def skills(self) -> Path:
        """Playbooks for coding agents."""
        return self.path / "skills"

    @property
    def artifacts(self) -> Path:
        """The archive."""
        return self.path / "artifacts"

    @property
    def retained(self) -> Path:
        """Committed evidence, one folder per definition and target."""
        return self.artifacts / "retained"

    @property
    def local(self) -> Path:
        """Runs, archived candidates, build cache and logs of this machine; never committed."""
        return self.artifacts / "local"


def find_root(explicit: Path | None = None) -> Root:
    """Find the root; see the module docstring for the order.

    Args:
        explicit: The value of ``--root``, which wins over everything else.

    Raises:
        NotFoundError: If the folder named by ``explicit`` or ``$KOPT_ROOT`` has no
            ``kernels/``, or if nothing is found at all.
    """
    if explicit is not None:
        return _named(explicit, "--root")
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "kernels").is_dir():
            return Root(folder, "parent folder")
    named = kopt_root()
    if named is not None:
        return _named(named, "$KOPT_ROOT")
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "kernels").is_dir():
        return Root(checkout, "checkout")
    raise NotFoundError(
        f"no kernels/ folder in {str(here)!r} or above it",
        hint="name a kopt checkout with --root DIR or $KOPT_ROOT",
    )


def _named(folder: Path, found_by: str) -> Root:
    path = folder.expanduser().absolute()
    if not path.is_dir():
        raise NotFoundError(
            f"{found_by} names {str(folder)!r}, which is not a folder",
            hint="give the folder that contains kernels/",
        )
    if not (path / "kernels").is_dir():
        raise NotFoundError(
            f"{found_by} names {str(folder)!r}, which has no kernels/ folder",
            hint="give the folder that contains kernels/",
        )
    return Root(path, found_by)
