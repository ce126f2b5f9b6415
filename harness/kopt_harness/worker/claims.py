"""What a candidate process says of a call or a profile, checked for its form.

Candidate code shares that process and can write to its channel, so nothing here is more than
a claim: a number of the right type, a text that can be printed.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator

from kopt_harness.schema import ProfiledKernel

from .wire import WireError

__all__ = ["CallClaim", "Conduct", "ProfileClaim", "plain_text", "read_claim"]

_MAX_TEXT = 2000
_Count = Annotated[int, Field(strict=True, ge=0, lt=1 << 62)]
_Finite = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Text = Annotated[str, AfterValidator(lambda text: plain_text(text)[:200])]


class _Claim(BaseModel):
    """Other fields of the answer are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class KernelClaim(_Claim):
    """Time of all launches of one kernel in a call."""

    name: str
    ns: _Count
    count: _Count = 1
    """Launches of it."""


class ActivityClaim(_Claim):
    """What a timer records beside the span; a CPU has none of it."""

    launches: _Count | None = None
    busy_ns: _Count | None = None
    host_ns: _Count | None = None
    before_first_ns: _Count | None = None
    kernels: tuple[KernelClaim, ...] = ()
    unowned: tuple[_Text, ...] = ()
    """Activities between the fences that no call and no fingerprint launched."""
    tampered: _Text | None = None
    """Why the records of the call are not whole although recording was on when it began."""
    compiled: _Count | None = None
    """Kernels that were compiled during the call."""
    idle_ns: _Count | None = None
    """When the whole device was idle, where that is far beyond the span of the timer."""


class Conduct(_Claim):
    """What candidate code has done to its process, as far as that process tells."""

    touched: tuple[_Text, ...] = ()
    """Functions of clock, stream, comparison or worker that are not what they were."""
    hooks: tuple[_Text, ...] = ()
    """What has the interpreter run candidate code between lines of kopt."""
    changed_state: tuple[_Text, ...] = ()
    """Switches that act on all of PyTorch."""
    outreach: tuple[_Text, ...] = ()
    """Attempts to reach the network, or to install something."""
    libraries: tuple[_Text, ...] = ()
    """Libraries of whole operators that it has imported."""


class CallClaim(Conduct):
    """Of one call."""

    ns: _Count | None = None
    details: ActivityClaim = ActivityClaim()
    bad_output: str | None = None
    """Why what was returned cannot be taken."""
    lazy_output: bool = False
    """Whether that is because it has code of its own."""
    late_writes: tuple[_Text, ...] = ()
    """Outputs that changed between return and synchronisation."""

    @field_validator("bad_output")
    @classmethod
    def _printable(cls, value: str | None) -> str | None:
        return None if value is None else plain_text(value)

    @property
    def is_time(self) -> bool:
        """Whether it has a duration, or says that nothing ran on the device."""
        return bool(self.ns) or (self.ns == 0 and self.details.launches == 0)


class ProfileClaim(_Claim):
    """Of one profiled call."""

    total_us: _Finite | None
    launches: _Count | None
    kernels: tuple[ProfiledKernel, ...]
    notes: tuple[str, ...] = ()


_C = TypeVar("_C", bound=_Claim)


def read_claim(model: type[_C], answer: dict[str, Any]) -> _C:
    """The claim in an answer.

    Raises:
        WireError: If it is not of the form of ``model``.
    """
    try:
        return model.model_validate(answer)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise WireError(f"the answer's {field!r}: {first['msg']}") from error


def plain_text(text: str) -> str:
    """The beginning of a text, with what a terminal would act on or refuse written out."""
    shown = (c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text[:_MAX_TEXT])
    return "".join(shown)
