"""What holds for every builder, found by listing the folder."""

import sys
from pathlib import Path

import kopt_harness.build
import pytest
from kopt_harness.build import Builder, get_builder, list_builders
from kopt_harness.errors import NotFoundError
from kopt_harness.proc import run


def test_every_language_of_the_contest_has_a_builder() -> None:
    """A folder listing finds them."""
    assert {builder.language for builder in list_builders()} >= {"python", "triton", "cpp", "cuda"}


@pytest.mark.parametrize("builder", list_builders(), ids=lambda b: b.language)
def test_builder_is_one_module_named_after_its_language(builder: Builder) -> None:
    """A language is added by adding exactly one file."""
    folder = Path(kopt_harness.build.__file__).parent
    assert isinstance(builder, Builder)
    assert get_builder(builder.language) is builder
    assert (folder / f"{builder.language}.py").is_file()


def test_unknown_language_is_an_error_that_lists_the_languages() -> None:
    """The hint names what there is."""
    with pytest.raises(NotFoundError, match="'fortran'") as caught:
        get_builder("fortran")
    assert "cpp" in caught.value.hint


def test_the_orchestrator_side_loads_no_gpu_stack() -> None:
    """Importing, listing builders and planning leave torch, triton and cutlass unloaded."""
    script = """
import sys
from kopt_harness.build import BuildRequest, list_builders
from kopt_harness.errors import UnavailableError
from kopt_harness.schema import BuildSpec, Solution, SourceFile
for builder in list_builders():
    for kind, arch in (("cpu", None), ("cuda", "sm_90a")):
        text = "def run(): ...\\ndef precompile(axes): ..."
        spec = BuildSpec(language=builder.language, entry_point="a.py::run")
        solution = Solution(name="a", definition="a", author="a", spec=spec,
                            sources=(SourceFile(path="a.py", content=text),))
        try:
            builder.plan(BuildRequest(solution=solution, target="t", kind=kind, arch=arch))
        except UnavailableError:
            pass
print(sorted({"torch", "triton", "cutlass", "tvm_ffi", "cupti"} & set(sys.modules)))
"""
    done = run([sys.executable, "-P", "-c", script], timeout_s=60)
    assert done.stdout.strip() == "[]", done.output
