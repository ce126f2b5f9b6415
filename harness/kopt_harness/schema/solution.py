"""A packed solution: the JSON of FlashInfer-Bench, and its content hash."""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from ._base import Model

Language = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
"""Name of a module of ``kopt_harness.build``; CuTe DSL solutions are python."""

Binding = Literal["tvm-ffi", "torch"]


class SourceFile(Model):
    """One source, with its path relative to the solution's source root."""

    path: str
    content: str

    @field_validator("path")
    @classmethod
    def _inside(cls, value: str) -> str:
        path = PurePosixPath(value)
        bad = path.is_absolute() or ".." in path.parts or "\\" in value or "\0" in value
        if bad or not path.parts or str(path) != value:
            raise ValueError(f"{value!r} is not a plain relative path inside the solution")
        return value


class BuildSpec(Model):
    """How a solution is built and called."""

    language: Language
    target_hardware: tuple[str, ...] = ("cuda",)
    """``cpu``, ``cuda`` or a target name; what the author wrote it for."""
    entry_point: str
    """``file::function``."""
    dependencies: tuple[str, ...] = ()
    destination_passing_style: bool = True
    """``run(*inputs, *outputs)`` if true, else ``run(*inputs) -> outputs``."""
    binding: Binding | None = None
    """Of cpp and cuda; null means tvm-ffi."""

    @field_validator("entry_point")
    @classmethod
    def _two_parts(cls, value: str) -> str:
        file, sep, function = value.partition("::")
        if not sep or not file or not function.isidentifier():
            raise ValueError(f"{value!r} is not of the form file::function")
        return value

    @property
    def entry_file(self) -> str:
        """Path of the entry source."""
        return self.entry_point.partition("::")[0]

    @property
    def entry_function(self) -> str:
        """Name of the function that is called."""
        return self.entry_point.partition("::")[2]


class Solution(Model):
    """Packed source that implements a definition."""

    name: str
    definition: str
    """Full id."""
    author: str
    description: str = ""
    spec: BuildSpec
    sources: tuple[SourceFile, ...]

    @model_validator(mode="after")
    def _consistent(self) -> Solution:
        paths = [source.path for source in self.sources]
        doubles = sorted({path for path in paths if paths.count(path) > 1})
        if doubles:
            raise ValueError(f"the source {doubles[0]!r} appears twice")
        if self.spec.entry_file not in paths:
            raise ValueError(f"the entry file {self.spec.entry_file!r} is not among the sources")
        return self

    @cached_property
    def sha256(self) -> str:
        """Hash over length-prefixed definition, build spec and sources; the name is not in it."""
        digest = hashlib.sha256()
        parts = [self.definition, self.spec.model_dump_json()]
        for source in sorted(self.sources, key=lambda s: s.path):
            parts += [source.path, source.content]
        for part in parts:
            data = part.encode()
            digest.update(len(data).to_bytes(8, "little") + data)
        return digest.hexdigest()
