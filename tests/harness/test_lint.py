"""The reading of sources: what is found, where, what comes of it, and what is let alone."""

from __future__ import annotations

import gc
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kopt_harness.lint import RULES, LintReport, lint
from kopt_harness.lint.tokens import tokenize
from kopt_harness.pack import pack
from kopt_harness.schema import BuildSpec, Solution, SourceFile

CHECKOUT = Path(__file__).parents[2]
SOLUTIONS = sorted(CHECKOUT.glob("kernels/*/solutions/*"))
RUN = "\ndef run(*arguments):\n    kernel(*arguments)\n"


def read(files: dict[str, str], entry: str = "kernel.py") -> LintReport:
    """The report on sources by path."""
    sources = tuple(SourceFile(path=path, content=text) for path, text in files.items())
    language = "python" if entry.endswith(".py") else "cuda"
    spec = BuildSpec(language=language, entry_point=f"{entry}::run")
    return lint(Solution(name="s", definition="d", author="a", spec=spec, sources=sources))


def python(text: str) -> LintReport:
    """The report on one Python source with an entry function."""
    return read({"kernel.py": text + RUN})


def native(text: str) -> LintReport:
    """The report on one CUDA source."""
    return read({"kernel.cu": text}, "kernel.cu")


def rules(report: LintReport) -> set[str]:
    """Names of the rules that found something."""
    return {finding.rule for finding in report.findings}


@pytest.mark.parametrize("folder", SOLUTIONS, ids=lambda path: f"{path.parts[-3][:9]}-{path.name}")
def test_the_solutions_of_the_project_have_no_finding(folder: Path) -> None:
    """Honest kernels in five languages: a false alarm here is an error of the lint."""
    assert lint(pack(folder).solution) == LintReport()


PYTHON = {
    "import time\ntime.perf_counter_ns = lambda: 0": "patch",
    "import torch\ne = torch.cuda.Event\ne.elapsed_time = lambda a, b: 1e-4": "patch",
    "from torch import cuda as c\nsetattr(c, 'synchronize', print)": "patch",
    "import torch\ntorch.nn.functional.__dict__['relu'] = print": "patch",
    "import torch\ntype.__setattr__(torch.Tensor, 'float', print)": "patch",
    "import sys\nf = sys._getframe": "frames",
    "from inspect import stack as look\nlook()": "frames",
    "def f(x):\n    return x.f_back.f_locals": "frames",
    "from gc import get_objects": "collector",
    "import sys\nm = sys.modules['__main__']": "module-table",
    "exec('x = 1')": "dynamic-code",
    "code = compile('x', 'y', 'exec')": "dynamic-code",
    "f = __import__('os')": "dynamic-code",
    "import importlib\nm = importlib.import_module('to' + 'rch')": "dynamic-code",
    "import base64\nx = base64.b64decode('eA==')": "encoded-data",
    "import torch\ng = getattr(torch.cuda, 'CUDAGra' + 'ph')": "hidden-name",
    "import torch\nn = ''.join(['a', chr(98)])\ng = getattr(torch.cuda, n)": "hidden-name",
    "import torch\ng = vars(torch)['compile']": "hidden-name",
    "import ctypes\nlib = ctypes.CDLL(None)": "native-memory",
    "from ctypes import pythonapi as p": "native-memory",
    "import urllib.request": "network",
    "def late():\n    import socket": "network",
    "import subprocess as sp\nsp.run(['pip', 'install', 'x'])": "subprocess",
    "import os\nos.system('true')": "subprocess",
    "import os\nwork = os.environ.get('HOME')": "environment",
    "import sys\nif 'benchmark' in sys.argv: pass": "environment",
    "import threading\nthreading.Thread(target=print).start()": "thread",
    "import atexit\natexit.register(print)": "thread",
    "import torch\ns = torch.cuda.Stream()": "unjoined-stream",
    "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True": "global-state",
    "import torch\ntorch.set_float32_matmul_precision('high')": "global-state",
    "import torch\nf = torch.nn.functional.scaled_dot_product_attention": "library-call",
    "import torch.nn.functional as F\nF.scaled_dot_product_attention(1, 2, 3)": "library-call",
    "import flashinfer\nflashinfer.gdn_decode": "library-call",
    "import torch\ng = torch.ops.flashinfer.decode": "library-call",
    "import torch\ng = getattr(torch.ops, 'flashinfer')": "library-call",
    "from reference import run as truth": "reference",
    "p = '/x/kernels/gdn/workloads.jsonl'": "reference",
    "import kopt_harness": "harness",
    "m = 'kopt_harness.worker.judge'": "harness",
    "for n in open('/proc/self/maps'): pass": "proc-files",
    "open('torch.py', mode='w').write('')": "files",
    "from pathlib import Path\nPath('sitecustomize.py').write_text('')": "files",
    "import pickle": "pickle",
    "import torch.profiler": "profiler",
    "import torch\nx = torch.autograd._profiler_enabled()": "profiler",
    "import torch\nclass Lazy(torch.Tensor): pass": "lazy-output",
    "def f(out):\n    out.double = lambda: 1": "lazy-output",
    "n = 0\ndef f():\n    global n\n    n += 1\n    return n > 15": "call-count",
    "state = {'n': 0}\ndef f():\n    state['n'] += 1\n    return state['n'] == 4": "call-count",
    "import triton\n@triton.jit\ndef _fused(x): pass": "dead-kernel",
    "import triton as t\n@t.jit\ndef one(x): two(x)\n@t.jit\ndef two(x): one(x)": "dead-kernel",
    "SOURCE = '''#include <a.h>\nvoid f() { system(\"x\"); }'''": "subprocess",
    "SOURCE = '''__global__ void never(int* x) { *x = 1; }'''": "dead-kernel",
    "cache = {}\ndef f(x):\n    return cache.get((x.data_ptr(), 1))": "pointer-key",
}


@pytest.mark.parametrize(("text", "rule"), PYTHON.items(), ids=range(len(PYTHON)))
def test_what_is_found_in_python(text: str, rule: str) -> None:
    """Through aliases, local imports, constant arithmetic on strings, and embedded sources."""
    assert rule in rules(python(text))


NATIVE = {
    "void f() { std::thread([] {}).detach(); }": "thread",
    "void f() { pthread_create(&t, 0, g, 0); }": "thread",
    "void f() { cudaLaunchHostFunc(s, g, 0); }": "host-callback",
    "void f() { cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking); }": "unjoined-stream",
    "void f() { cuda\\\nStreamCreate(&s); }": "unjoined-stream",
    "#define P(a, b) a##b\nvoid f() { P(cuda, StreamCreate)(&s); }": "pasted-name",
    "#define P(a, b) a##b\nvoid f() { P(cudaStream, Create)(&s); }": "unjoined-stream",
    "#define GRAPH(x) cudaGraph##x\n": "pasted-name",
    "void f() { cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, n); }": "persisting-cache",
    'void f() { dlsym(h, "cudaEventElapsedTime"); }': "dynamic-library",
    'auto h = open_it("libcu" "blas.so.12");': "dynamic-library",
    "#include <dlfcn.h>\n": "dynamic-library",
    'void f() { getenv("PYTEST_CURRENT_TEST"); }': "environment",
    "void f() { if (::fork() == 0) {} }": "subprocess",
    'void f() { std::ofstream out("torch.py"); }': "files",
    '#include "/etc/passwd"\n': "files",
    'void f() { PyRun_SimpleString("x"); }': "python-api",
    'void f() { py::module_::import("time"); }': "python-api",
    "#include <cupti.h>\n": "profiler",
    "void f() { cuptiFinalize(); }": "profiler",
    "#include <flashinfer/attention/decode.cuh>\n": "library-call",
    'void f() { asm volatile("syscall" : : : "memory"); }': "syscall",
    "void f() { cuMemGetAddressRange(&b, &n, p); }": "memory-scan",
    "__global__ void __launch_bounds__(64) never(int* x) {}\nvoid run() {}": "dead-kernel",
    "__global__ void self(int* x) { self<<<1, 1>>>(x); }\nvoid run() {}": "dead-kernel",
}


@pytest.mark.parametrize(("text", "rule"), NATIVE.items(), ids=range(len(NATIVE)))
def test_what_is_found_in_cuda(text: str, rule: str) -> None:
    """Identifiers, calls, headers, strings in pieces, spliced lines and pasted names."""
    assert rule in rules(native(text))


REJECTED = {
    "import ctypes\nctypes.CDLL(None).ptrace(16, 1, 0, 0)": "process-memory",
    "import ctypes\nf = getattr(ctypes.CDLL(None), 'process_vm_' + 'writev')": "process-memory",
    "p = open('/proc/self/mem', 'r+b')": "process-memory",
    "import os\np = f'/proc/{os.getppid()}/mem'": "process-memory",
    "import os, sys\nos.write(int(sys.argv[2]), b'x')": "worker-channel",
    "import socket, sys\ns = socket.socket(fileno=int(sys.argv[2]))": "worker-channel",
    "import sys\nf = sys._getframe()\nc = f.f_locals['self']._channel": "harness-frames",
    "import gc\nt = [x for x in gc.get_objects() if 'kopt_harness.worker.wire' in str(x)]": "",
    "import gc\nm = 'kopt_harness.worker.wire'\ngc.get_objects()": "harness-frames",
    "import ctypes\nl = ctypes.CDLL(None)\nl.mprotect(l.clock_gettime, 4096, 7)": "clock-hook",
}


@pytest.mark.parametrize(("text", "rule"), REJECTED.items(), ids=range(len(REJECTED)))
def test_bright_lines_in_python(text: str, rule: str) -> None:
    """What no kernel needs is rejected, with the place; a mere mention in a text is not."""
    report = python(text)
    if not rule:
        assert report.flags
        rule = "harness-frames"
    assert report.reject is not None
    assert report.reject.code == f"lint-{rule}"
    assert report.reject.detail.startswith("kernel.py:")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("void f() { ptrace(PTRACE_ATTACH, p, 0, 0); }", "process-memory"),
        ('void f() { open("/proc/self/mem", 2); }', "process-memory"),
        ('extern "C" int clock_gettime(clockid_t c, timespec* t) { return 0; }', "clock-hook"),
        ("void f() { mprotect(p, n, 7); patch(cudaEventElapsedTime); }", "clock-hook"),
    ],
)
def test_bright_lines_in_cuda(text: str, rule: str) -> None:
    """The same, out of native code."""
    report = native(text)
    assert report.reject is not None
    assert report.reject.code == f"lint-{rule}"


HONEST_PYTHON = [
    '"""No CUDA graph, no subprocess, no /proc/self/mem, exec(), ptrace; see reference.py."""',
    "# import socket; sys._getframe(); os.system('x')",
    "import torch\nwith torch.no_grad():\n    x = torch.compile",
    "import re\nx = re.compile('a')\ndef evaluate(model):\n    return model.eval()",
    "import triton.language as tl\nx = getattr(tl, 'float32')",
    "import torch\ndef f(name):\n    return getattr(torch, name)",
    "import torch\nx = dict(num_stages=2, num_warps=4)\nok = x == x",
    "def f(x, y):\n    return x.data_ptr() == y.data_ptr()",
    "def run_all(time):\n    time.start = 1\n    return time",
    "class C:\n    def __init__(self, n):\n        self.n = n\n    def next(self):\n"
    "        self.n += 1\n        return self.n == 4",
    "import threading\nlock = threading.Lock()\nt = threading.Thread(target=print)\nt.join()",
    "import torch\ns = torch.cuda.Stream()\ns.wait_stream(torch.cuda.current_stream())",
    "import torch\ng = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(g): pass",
    "from pathlib import Path\nTEXT = Path(__file__).with_name('a.cu').read_text()",
    "import math, functools, torch\nx = torch.matmul, torch.bmm, torch.topk, torch._scaled_mm",
    "from .reference_layout import inputs\nfrom . import kernels",
    "import importlib\nm = importlib.import_module('.helper', __package__)",
    "MESSAGE = 'the process would need exec(2) and /proc, see reference.py'",
    "from kopt_harness.simulated import launch\nlaunch(print)",
    "import os\nHERE = os.path.join(os.path.dirname(__file__), 'x')",
]


@pytest.mark.parametrize("text", HONEST_PYTHON, ids=range(len(HONEST_PYTHON)))
def test_what_is_let_alone_in_python(text: str) -> None:
    """Words in texts, methods of the same name, joined threads and streams, graphs."""
    assert python(text) == LintReport()


HONEST_NATIVE = [
    '// cudaStreamCreate, system("x"), ptrace and no CUDA graph\n/* dlsym */ int x;',
    'void f() { pool.fork(); queue->open(); const char* s = "system() failed"; }',
    "void f() { throw std::system_error(e); } struct signal { int connect(int); };",
    "#define DISPATCH(T) launch_##T(x)\nvoid f() { DISPATCH(float); }",
    "#define CAT(a, b) a##b\nint CAT(x, 1) = 0;",
    "void f() { std::vector<std::thread> t; for (auto& x : t) x.join(); }",
    "void f() { cudaStreamCreate(&s); cudaStreamWaitEvent(s, e, 0); }",
    "void f() { cudaStreamBeginCapture(s, m); cudaGraphLaunch(g, s); data_ptr() == p; }",
    "__global__ void used(int* x) {}\nvoid run() { used<<<1, 1>>>(p); }",
    "__global__ void used(int* x);\nvoid run() { launch(used); }\n__global__ void used(int* x) {}",
    "void f() { auto t0 = clock_gettime(CLOCK_MONOTONIC, &t); cudaEventElapsedTime(&ms, a, b); }",
    "auto s = R\"(void f() { system(1); })\"; char c = '\"'; int n = 1'000;",
]


@pytest.mark.parametrize("text", HONEST_NATIVE, ids=range(len(HONEST_NATIVE)))
def test_what_is_let_alone_in_cuda(text: str) -> None:
    """Comments, strings, members, macros of types, joined work, launches of kernels."""
    assert native(text) == LintReport()


def test_a_finding_has_its_place() -> None:
    """File, line and column of the expression, in every packed source."""
    files = {"kernel.py": "from .sub import helper" + RUN, "sub/helper.py": "\nx = 1\ny = exec\n"}
    (finding,) = read(files).findings
    assert (finding.path, finding.line, finding.column) == ("sub/helper.py", 3, 5)
    assert (finding.text, finding.where) == ("y = exec", "sub/helper.py:3")
    (flag,) = read(files).flags
    assert flag.code == "lint-dynamic-code"
    assert "sub/helper.py:3" in flag.detail


def test_a_place_survives_spliced_lines_and_strings_of_python() -> None:
    """Lines are counted in the file that a person opens."""
    text = "int a;\n#define X \\\n  1\nvoid f() { ptrace(0); }"
    assert native(text).findings[0].line == 4
    inside = python("\nS = '''\n#include <a.h>\nvoid f() { ptrace(0); }'''")
    assert {f.line for f in inside.findings} == {4}


def test_one_flag_a_rule_with_its_places() -> None:
    """A file full of findings is one line of the report."""
    report = python("\n".join(["x = exec"] * 500))
    (flag,) = report.flags
    assert "and 497 more" in flag.detail
    assert len(report.findings) <= 200


def test_information_is_no_flag() -> None:
    """A look-up by address bars nothing by itself: what it does is found out by calling it."""
    report = python("cache = {}\ndef f(x):\n    return cache[id(x)]")
    assert rules(report) == {"pointer-key"}
    assert (report.flags, report.reject) == ((), None)


def test_a_source_that_is_no_python_is_left_to_the_build() -> None:
    """It has no tree to be read, and cannot be run."""
    for text in ("def (:", "(" * 5000, "-" * 200_000 + "1", "x = " + "1+" * 50_000 + "1", "\0"):
        read({"kernel.py": text})


def test_a_source_that_is_too_long_is_flagged() -> None:
    """What has not been read is for a person to look at."""
    text = "x = 1\n" * 200_000
    assert [flag.code for flag in python(text).flags] == ["lint-unread"]


def test_every_rule_says_why_and_a_few_reject() -> None:
    """A reason is a clause; bright lines are few."""
    for name, rule in RULES.items():
        assert rule.why, name
        assert not rule.why.endswith("."), name
    assert sum(rule.level == "reject" for rule in RULES.values()) <= 5


@pytest.mark.parametrize(
    "unit",
    ["\n", '"', 'R"(', "/*", "'", "a.", "f(", "{", "#define a(", "\\\n", "__global__ a(", "##a"],
)
def test_reading_takes_time_linear_in_the_size(unit: str) -> None:
    """Sources are written by somebody who may want to keep the reader busy."""

    def seconds(size: int) -> float:
        text = unit * (size // len(unit))
        gc.disable()  # it would walk whatever other tests have left
        try:
            start = time.process_time()
            native(text)
            return time.process_time() - start
        finally:
            gc.enable()

    seconds(1_000)  # the first one imports and compiles
    # In the square of the size it would be sixteen times as long, and a second is nothing.
    assert seconds(200_000) < 8 * seconds(50_000) + 1


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.text(alphabet="ab1\"'\\/*\n#()<>R:.", max_size=60))
def test_tokens_lie_where_they_say(text: str) -> None:
    """Any text is read; a token that is not spliced stands at its line and column."""
    lines = text.split("\n")
    for token in tokenize(text):
        if token.kind in ("name", "number") and "\\" not in text:
            line = lines[token.line - 1]
            assert line[token.column - 1 :].startswith(token.text)


def test_every_rule_is_documented() -> None:
    """The table of docs/lint.md is that of the rules."""
    rows = [line.split("|") for line in (CHECKOUT / "docs" / "lint.md").read_text().splitlines()]
    written = {
        row[1].strip(" `"): (row[2].strip(), row[3].strip()) for row in rows if len(row) == 5
    }
    for header in ("rule", "---"):
        del written[header]
    assert written == {name: (rule.level, rule.why) for name, rule in RULES.items()}
