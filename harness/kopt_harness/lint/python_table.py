"""Dotted names and words that rules look for in Python sources.

A pattern matches a dotted name that is it or begins with it and a dot.
"""

from __future__ import annotations

import re

__all__ = [
    "ATTRIBUTES",
    "CLOCKS",
    "JOINERS",
    "KERNEL_DECORATORS",
    "NAMES",
    "OWN_STATE",
    "STRINGS",
    "TENSOR_METHODS",
    "rules_of",
]

_NAMES = {
    "collector": """
        gc.callbacks gc.disable gc.enable gc.freeze gc.get_objects gc.get_referents
        gc.get_referrers gc.set_debug gc.set_threshold
    """,
    "descriptors": """
        fcntl os.dup os.dup2 os.fdopen os.open os.pipe os.sendfile os.write os.writev
        socket.fromfd
    """,
    "dynamic-code": """
        builtins.__import__ builtins.compile builtins.eval builtins.exec code codeop imp
        importlib.machinery importlib.util.module_from_spec
        importlib.util.spec_from_file_location importlib.util.spec_from_loader marshal runpy
        types.CodeType types.FunctionType zipimport
    """,
    "encoded-data": """
        base64 binascii.a2b_base64 binascii.unhexlify builtins.bytes.fromhex bz2 codecs.decode
        gzip lzma zlib
    """,
    "environment": """
        os.environ os.environb os.getenv os.getenvb os.putenv os.unsetenv sys.argv sys.orig_argv
    """,
    "files": """
        os.chmod os.link os.makedirs os.mkdir os.remove os.rename os.replace os.symlink
        os.truncate os.unlink shutil torch.save
    """,
    "frames": """
        inspect.currentframe inspect.getinnerframes inspect.getouterframes inspect.stack
        inspect.trace sys._current_frames sys._getframe sys.setprofile sys.settrace
        traceback.extract_stack traceback.walk_stack
    """,
    "global-state": """
        sys.setrecursionlimit sys.setswitchinterval torch._C._set_cublas_allow_tf32
        torch._C._set_default_dtype torch.cuda.memory.change_current_allocator
        torch.set_default_device torch.set_default_dtype torch.set_default_tensor_type
        torch.set_deterministic_debug_mode torch.set_float32_matmul_precision
        torch.set_flush_denormal torch.set_num_interop_threads torch.set_num_threads
        torch.use_deterministic_algorithms
    """,
    "harness": """
        kopt_controller kopt_harness
    """,
    "library-call": """
        aiter cudnn deep_gemm fla.ops flash_attn flash_attn_interface flash_mla flashinfer lmdeploy
        sglang tensorrt_llm torch._scaled_dot_product_flash_attention
        torch.nn.attention.flex_attention torch.nn.functional.multi_head_attention_forward
        torch.nn.functional.scaled_dot_product_attention torch.nn.MultiheadAttention
        torch.ops.aten._flash_attention_forward torch.ops.flashinfer torch.ops.sgl_kernel
        torch.ops.vllm transformer_engine vllm xformers
    """,
    "module-table": """
        sys.meta_path sys.modules sys.path sys.path_hooks
    """,
    "native-memory": """
        cffi ctypes.CDLL ctypes.cdll ctypes.CFUNCTYPE ctypes.memmove ctypes.memset
        ctypes.py_object ctypes.PyDLL ctypes.pydll ctypes.PYFUNCTYPE ctypes.pythonapi
        ctypes.string_at ctypes.util.find_library ctypes.WinDLL mmap
    """,
    "network": """
        aiohttp ftplib http httpx huggingface_hub requests smtplib socket socketserver ssl
        torch.hub urllib.request urllib3 websockets xmlrpc
    """,
    "pickle": """
        cloudpickle dill multiprocessing.shared_memory pickle shelve torch.load
    """,
    "profiler": """
        cProfile cupti profile sys.getprofile sys.gettrace sys.monitoring
        torch.autograd._profiler_enabled torch.autograd.profiler torch.cuda.nvtx
        torch.cuda.profiler torch.profiler
    """,
    "reference": """
        cost inputs kernels reference sota
    """,
    "subprocess": """
        concurrent.futures.ProcessPoolExecutor ensurepip multiprocessing os.execv os.execve
        os.execvp os.fork os.forkpty os.kill os.killpg os.popen os.posix_spawn os.posix_spawnp
        os.spawnv os.spawnve os.system pip pty subprocess torch.multiprocessing
    """,
    "thread": """
        _thread.start_new_thread asyncio atexit.register concurrent.futures.ThreadPoolExecutor
        multiprocessing.pool.ThreadPool signal.setitimer signal.signal threading.Thread
        threading.Timer weakref.finalize
    """,
    "unjoined-stream": """
        cupy.cuda.Stream torch.cuda.ExternalStream torch.cuda.Stream torch.Stream
    """,
}

NAMES: dict[str, tuple[str, ...]] = {rule: tuple(text.split()) for rule, text in _NAMES.items()}
"""Dotted names by rule."""

ATTRIBUTES: dict[str, str] = {
    "__closure__": "frames",
    "__code__": "frames",
    "__globals__": "frames",
    "__subclasses__": "collector",
    "_make_subclass": "lazy-output",
    "_make_wrapper_subclass": "lazy-output",
    "__torch_dispatch__": "lazy-output",
    "__torch_function__": "lazy-output",
    "f_back": "frames",
    "f_globals": "frames",
    "f_locals": "frames",
    "process_vm_readv": "process-memory",
    "process_vm_writev": "process-memory",
    "ptrace": "process-memory",
    "tb_frame": "frames",
    "write_bytes": "files",
    "write_text": "files",
}
"""Attributes of anything, and strings that are exactly this, by rule."""

STRINGS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"/proc/[^/\s]+/(task/[^/\s]+/)?mem"), "process-memory"),
    (re.compile(r"/(proc|sys)/\S*|/dev/(?!null$)\S*"), "proc-files"),
    (
        re.compile(r"[\w./*~-]*\b(reference\.py|inputs\.py|workloads\.jsonl|definition\.json)"),
        "reference",
    ),
    (re.compile(r"[^\n]*\bkopt_(harness|controller)\b[^\n]*"), "harness"),
    (re.compile(r"LD_PRELOAD|LD_AUDIT"), "environment"),
)
"""Patterns of whole constant strings; the first that matches counts."""

CLOCKS = frozenset(
    {
        "clock_gettime",
        "cuEventElapsedTime",
        "cuEventElapsedTime_v2",
        "cudaEventElapsedTime",
        "cuptiGetTimestamp",
        "gettimeofday",
    }
)
"""Functions that a timer reads."""

JOINERS: dict[str, frozenset[str]] = {
    "unjoined-stream": frozenset({"synchronize", "wait_event", "wait_stream"}),
}
"""Methods that, called anywhere in a file, take a rule back."""

OWN_STATE = (
    "torch.backends",
    "torch._dynamo.config",
    "torch._inductor.config",
    "torch.utils.deterministic",
)
"""Where an assignment is a setting and not a patch."""

KERNEL_DECORATORS = (
    "cutlass.cute.kernel",
    "helion.kernel",
    "numba.cuda.jit",
    "tilelang.jit",
    "triton.jit",
    "warp.kernel",
)

TENSOR_METHODS = frozenset(
    ("__array__", "__eq__", "__sub__", "clone", "contiguous", "cpu", "cuda", "data_ptr", "detach")
) | {"double", "float", "is_contiguous", "item", "numpy", "tolist"}
"""Assigned on an object, they run when somebody looks at it."""


def _by_name() -> dict[str, list[str]]:
    rules: dict[str, list[str]] = {}
    for rule, patterns in NAMES.items():
        for pattern in patterns:
            rules.setdefault(pattern, []).append(rule)
    return rules


_RULES_OF = _by_name()
_SIMULATED = "kopt_harness.simulated"
"""What solutions for the simulated device launch with; its results promote nobody."""


def rules_of(dotted: str) -> list[str]:
    """The rules that a dotted name falls under."""
    if (dotted + ".").startswith(_SIMULATED + "."):
        return []
    parts = dotted.split(".")
    prefixes = (".".join(parts[: end + 1]) for end in range(len(parts)))
    return [rule for prefix in prefixes for rule in _RULES_OF.get(prefix, ())]
