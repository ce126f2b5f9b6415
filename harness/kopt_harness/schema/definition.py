"""What an operator is: axes, typed inputs and outputs, tolerances.

The fields outside ``kopt`` are those of a FlashInfer-Trace definition; ``kopt`` holds
what only this project needs and is left out of an export.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Annotated, Literal

from pydantic import Field, model_validator

from ._base import Model

DType = Literal[
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
]

ITEM_BYTES: dict[str, int] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
"""Bytes of one element, by dtype name."""


Extent = Annotated[int, Field(strict=True, ge=0, le=1 << 40)]
"""How long an axis is."""

Tolerance = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""An error that is accepted."""


class Axis(Model):
    """One named dimension."""

    type: Literal["const", "var"]
    """``const`` axes have a value, ``var`` axes are bound by a workload."""
    value: Extent | None = None
    """Extent of a ``const`` axis."""
    description: str = ""

    @model_validator(mode="after")
    def _const_has_value(self) -> Axis:
        if (self.type == "const") != (self.value is not None):
            raise ValueError("a const axis has a value, a var axis has none")
        return self


class TensorSpec(Model):
    """One input or output."""

    shape: tuple[str, ...] | None
    """Axis names, outermost first; null for a Python scalar."""
    dtype: DType
    description: str = ""
    optional: bool = False
    """Whether a caller may pass None."""


class TensorShape(Model):
    """A tensor with its axes bound."""

    name: str
    shape: tuple[int, ...]
    dtype: DType

    @property
    def numel(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of a contiguous tensor of this shape."""
        return self.numel * ITEM_BYTES[self.dtype]


class ContestTolerance(Model):
    """The FlashInfer-Bench rule: an element fails if both errors exceed."""

    atol: Tolerance = 1e-2
    """Absolute error, in units of the output."""
    rtol: Tolerance = 1e-2
    """Relative error, dimensionless."""
    required_matched_ratio: float = Field(default=1.0, ge=0, le=1)
    """Least share of elements that must not fail."""


class StrictBound(Model):
    """How far an honest implementation may be from the high-precision reference."""

    rel: Tolerance
    """Largest relative error of a row (last axis) in the 2-norm; 0 means exact."""
    cancelled: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """A row in which terms cancel to less than this share of their size is measured against that
    share: ``magnitudes`` of the reference says what the size is. 0 means never."""
    block: Annotated[int, Field(ge=0)] = 0
    """So many neighbours in a row share a scale of their own: one of them is measured against the
    rms of its block where that is larger than the row's. 0 means that a row has one scale."""
    source: str
    """Where the number comes from: an honest implementation's own error, times what."""


class KoptSection(Model):
    """What kopt adds to a FlashInfer-Trace definition."""

    alias: str
    """Short name on the command line."""
    contest: ContestTolerance = ContestTolerance()
    strict: dict[str, StrictBound]
    """Bound of each output, by name."""
    static_inputs: tuple[str, ...] = ()
    """Inputs shared by all input sets of a session (weights, caches of hundreds of MB)."""
    mutable_inputs: tuple[str, ...] = ()
    """Inputs that a solution may write to, as operators do that work in place. They are filled
    before each call, so that no call meets what another one has left."""
    regime_axes: tuple[str, ...] = ()
    """Axes along which workloads are grouped into regimes, most important first."""
    several_answers: bool = False
    """Whether different outputs can be equally right, as a selection in any order is: then it
    means nothing that two calls on the same inputs leave other bits."""


class Definition(Model):
    """An operator."""

    name: str
    """The contest's id."""
    description: str
    op_type: str
    tags: tuple[str, ...] = ()
    axes: dict[str, Axis]
    constraints: tuple[str, ...] = ()
    """Python expressions over axis names."""
    inputs: dict[str, TensorSpec]
    """In call order."""
    outputs: dict[str, TensorSpec]
    """In call order, after the inputs under destination passing."""
    kopt: KoptSection = Field()

    @model_validator(mode="after")
    def _closed(self) -> Definition:
        for name, spec in (*self.inputs.items(), *self.outputs.items()):
            for axis in spec.shape or ():
                if axis not in self.axes:
                    raise ValueError(f"{name!r} uses the unknown axis {axis!r}")
        if any(spec.shape is None for spec in self.outputs.values()):
            raise ValueError("an output must be a tensor")
        if set(self.kopt.strict) != set(self.outputs):
            raise ValueError("kopt.strict must have one bound for each output")
        if not self.outputs or set(self.inputs) & set(self.outputs):
            raise ValueError("inputs and outputs have distinct names, and there is an output")
        fixed = set(self.kopt.regime_axes) - set(self.var_axes)
        if fixed:
            raise ValueError(f"kopt.regime_axes names no var axis: {sorted(fixed)}")
        unknown = set(self.kopt.static_inputs) - set(self.inputs)
        if unknown:
            raise ValueError(f"kopt.static_inputs names no input: {sorted(unknown)}")
        mutable = set(self.kopt.mutable_inputs)
        if unknown := mutable - set(self.inputs):
            raise ValueError(f"kopt.mutable_inputs names no input: {sorted(unknown)}")
        if shared := mutable & set(self.kopt.static_inputs):
            raise ValueError(f"static inputs are not filled before each call: {sorted(shared)}")
        return self

    @property
    def var_axes(self) -> tuple[str, ...]:
        """Names of the axes that a workload binds."""
        return tuple(name for name, axis in self.axes.items() if axis.type == "var")

    def bind(self, axes: Mapping[str, int]) -> dict[str, int]:
        """All axes with their extents; ``axes`` gives the variable ones."""
        bound = {name: axis.value for name, axis in self.axes.items() if axis.value is not None}
        return bound | {name: axes[name] for name in self.var_axes}

    def input_shapes(self, axes: Mapping[str, int]) -> tuple[TensorShape, ...]:
        """Tensor inputs in call order; Python scalars are left out."""
        return self._shapes(self.inputs, axes)

    def output_shapes(self, axes: Mapping[str, int]) -> tuple[TensorShape, ...]:
        """Outputs in call order."""
        return self._shapes(self.outputs, axes)

    def _shapes(
        self, specs: Mapping[str, TensorSpec], axes: Mapping[str, int]
    ) -> tuple[TensorShape, ...]:
        bound = self.bind(axes)
        return tuple(
            TensorShape(name=name, shape=tuple(bound[a] for a in spec.shape), dtype=spec.dtype)
            for name, spec in specs.items()
            if spec.shape is not None
        )


class Workload(Model):
    """A definition with its axes bound."""

    index: int
    """Position in ``workloads.jsonl``."""
    uuid: str = Field(pattern=r"^[A-Za-z0-9._-]+$")
    axes: dict[str, Extent]
    """Variable axes only."""
