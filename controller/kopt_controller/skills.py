"""Skills: folders of instructions for coding agents, and putting them where agents look.

A skill is a folder with a ``SKILL.md`` (front matter with name and description, then what an agent
should know) and documents in ``references/``. They lie in ``skills/`` of a checkout, and inside
the package where kopt was installed from a wheel.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from kopt_harness.atomic import sync_folder, write_atomic
from kopt_harness.errors import InvalidInputError, NotFoundError, UsageError
from kopt_harness.files import read_text

__all__ = [
    "MANIFEST",
    "PLACES",
    "Installed",
    "Skill",
    "find_skills",
    "install_skills",
    "parse_front_matter",
    "read_skills",
]

MANIFEST = ".kopt.json"
"""In an installed skill: a hash of each file as it was installed."""

PLACES = {"claude": Path(".claude/skills"), "codex": Path(".agents/skills")}
"""Below the home folder of a user, or the top of a project: where each program looks."""

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_MAX_NAME = 64
_MAX_DESCRIPTION = 1024


class Skill(NamedTuple):
    """A skill that can be installed."""

    name: str
    """Also that of its folder."""
    description: str
    """By which an agent decides whether to read it."""
    folder: Path

    def files(self) -> dict[str, bytes]:
        """Content by path below the folder."""
        found = (path for path in sorted(self.folder.rglob("*")) if path.is_file())
        return {
            path.relative_to(self.folder).as_posix(): path.read_bytes()
            for path in found
            if "__pycache__" not in path.parts
        }


class Installed(NamedTuple):
    """What became of a skill."""

    name: str
    folder: Path
    action: Literal["installed", "updated", "unchanged"]


def find_skills() -> Path:
    """The folder of the skills that came with this kopt.

    Raises:
        NotFoundError: There is none.
    """
    here = Path(__file__).resolve().parent
    places = (here / "skills_data", here.parents[1] / "skills")
    for place in places:
        if place.is_dir():
            return place
    raise NotFoundError(
        f"no skills at {str(places[0])!r} or {str(places[1])!r}",
        hint="install kopt from a checkout, or from a wheel that has its skills",
    )


def read_skills(folder: Path) -> list[Skill]:
    """All skills of a folder, by name.

    Raises:
        InvalidInputError: One of them has no valid front matter.
    """
    found = []
    for path in sorted(folder.glob("*/SKILL.md")):
        name, description = parse_front_matter(read_text(path, "SKILL.md"), str(path))
        if name != path.parent.name:
            raise InvalidInputError(
                f"{str(path)!r} is named {name!r}", hint=f"name it {path.parent.name!r}"
            )
        found.append(Skill(name, description, path.parent))
    return found


def parse_front_matter(text: str, where: str) -> tuple[str, str]:
    """Name and description out of the lines between the first two ``---``.

    Agents read YAML there. Accepted is what every reader of YAML takes in the same way: plain
    values on one line each.

    Args:
        text: Of a ``SKILL.md``.
        where: Its path, for messages.

    Raises:
        InvalidInputError: It is not of that form.
    """
    found = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    hint = "begin with ---, a line name: ..., a line description: ..., and ---"
    if found is None:
        raise InvalidInputError(f"{where!r} has no front matter", hint=hint)
    values: dict[str, str] = {}
    for line in found[1].splitlines():
        key, colon, value = line.partition(": ")
        value = value.strip()
        if not colon or key in values or not re.match(r"[A-Za-z]", value) or ": " in value:
            raise InvalidInputError(f"{where!r}: {line!r} is no plain value", hint=hint)
        values[key] = value
    if set(values) != {"name", "description"}:
        raise InvalidInputError(f"{where!r} has the keys {sorted(values)}", hint=hint)
    name, description = values["name"], values["description"]
    if not _NAME.fullmatch(name) or len(name) > _MAX_NAME:
        raise InvalidInputError(
            f"{where!r}: {name!r} is no name of a skill",
            hint=f"small letters, digits and hyphens, at most {_MAX_NAME}",
        )
    if len(description) > _MAX_DESCRIPTION:
        raise InvalidInputError(
            f"{where!r}: the description has {len(description)} characters",
            hint=f"at most {_MAX_DESCRIPTION}",
        )
    return name, description


def install_skills(skills: Sequence[Skill], place: Path, *, force: bool = False) -> list[Installed]:
    """Copies skills; each appears whole or not at all.

    Args:
        skills: What to install.
        place: The folder where an agent looks for skills; made if it is missing.
        force: Whether what somebody has changed may be replaced.

    Raises:
        UsageError: A skill of that name was changed, or is not from here; nothing was written.
    """
    refused = {} if force else {s.name: r for s in skills if (r := _foreign(place / s.name))}
    if refused:
        reasons = "; ".join(f"{str(place / name)!r} {why}" for name, why in refused.items())
        raise UsageError(f"not replaced: {reasons}", hint="move it away, or give --force")
    return [_install(skill, place) for skill in skills]


def _install(skill: Skill, place: Path) -> Installed:
    to, files = place / skill.name, skill.files()
    if to.is_dir() and not to.is_symlink() and _present(to) == files:
        return Installed(skill.name, to, "unchanged")
    is_new = not os.path.lexists(to)
    place.mkdir(parents=True, exist_ok=True)
    # On the file system of the place, so that a rename puts all of it there at once.
    with tempfile.TemporaryDirectory(dir=place, prefix=f".{skill.name}.") as scratch:
        fresh = Path(scratch, "new")
        for name, content in files.items():
            write_atomic(fresh / name, content)
        hashes = {name: _hash(content) for name, content in files.items()}
        write_atomic(fresh / MANIFEST, json.dumps({"files": hashes}, indent=1) + "\n")
        if not is_new:
            to.rename(Path(scratch, "old"))
        fresh.rename(to)
    sync_folder(place)
    return Installed(skill.name, to, "installed" if is_new else "updated")


def _foreign(folder: Path) -> str:
    """Why a folder may not be replaced without being asked; empty where it may."""
    if not os.path.lexists(folder):
        return ""
    if folder.is_symlink() or not folder.is_dir():
        return "is no folder"
    try:
        known = json.loads((folder / MANIFEST).read_text())["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return "was not installed by kopt"
    present = {name: _hash(content) for name, content in _present(folder).items()}
    changed = sorted(name for name in {*known, *present} if known.get(name) != present.get(name))
    return f"was changed: {', '.join(changed[:3])}" if changed else ""


def _present(folder: Path) -> dict[str, bytes]:
    """Files of an installed skill, its manifest left out."""
    files = Skill("", "", folder).files()
    files.pop(MANIFEST, None)
    return files


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
