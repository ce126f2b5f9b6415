"""Identifiers, headers and strings that rules look for in C++ and CUDA sources."""

from __future__ import annotations

import re

__all__ = ["CALLS", "HEADERS", "JOINERS", "PREFIXES", "STRINGS", "WORDS", "rule_of_word"]

_WORDS = {
    "descriptors": """
        dup2 dup3 fdopen memfd_create pidfd_getfd
    """,
    "dynamic-library": """
        cudaGetDriverEntryPoint cuGetProcAddress cuGetProcAddress_v2 dl_iterate_phdr dlmopen
        dlopen dlsym dlvsym
    """,
    "environment": """
        getenv putenv secure_getenv setenv unsetenv
    """,
    "files": """
        fopen fopen64 freopen fstream ofstream openat
    """,
    "global-state": """
        _MM_SET_DENORMALS_ZERO_MODE _MM_SET_FLUSH_ZERO_MODE _mm_setcsr
        cudaDeviceSetSharedMemConfig feenableexcept fesetround globalContext omp_set_num_threads
        set_num_threads setAllowTF32CuBLAS
    """,
    "host-callback": """
        cudaLaunchHostFunc cudaStreamAddCallback cuLaunchHostFunc cuStreamAddCallback
    """,
    "memory-scan": """
        cudaIpcOpenMemHandle cudaPointerGetAttributes cuMemGetAddressRange
        cuMemGetAddressRange_v2 cuPointerGetAttribute cuPointerGetAttributes
    """,
    "native-memory": """
        mprotect mremap pkey_mprotect
    """,
    "persisting-cache": """
        accessPolicyWindow CU_LIMIT_PERSISTING_L2_CACHE_SIZE CUaccessPolicyWindow
        cudaAccessPolicyWindow cudaCtxResetPersistingL2Cache cudaLimitPersistingL2CacheSize
        cudaStreamAttributeAccessPolicyWindow
    """,
    "process-memory": """
        process_vm_readv process_vm_writev ptrace
    """,
    "python-api": """
        PyEval_GetFrame PyEval_SetProfile PyEval_SetTrace PyFrame_GetBack PyFrame_GetGlobals
        PyFrame_GetLocals PyFunction_SetVectorcall PyImport_AddModule PyImport_GetModuleDict
        PyImport_Import PyImport_ImportModule PyModule_GetDict PyObject_SetAttr
        PyObject_SetAttrString PyRun_SimpleString PyRun_String PyThreadState_GetFrame
    """,
    "subprocess": """
        execl execle execlp execv execve execvp fexecve popen posix_spawn posix_spawnp vfork
    """,
    "syscall": """
        prctl seccomp sigaction userfaultfd
    """,
    "thread": """
        pthread_create setitimer timer_create
    """,
    "unjoined-stream": """
        cudaStreamCreate cudaStreamCreateWithFlags cudaStreamCreateWithPriority cuStreamCreate
        cuStreamCreateWithPriority getStreamFromPool
    """,
}

WORDS: dict[str, str] = {word: rule for rule, words in _WORDS.items() for word in words.split()}
"""Rule by identifier, wherever it stands."""

CALLS: dict[str, str] = {
    "accept": "network",
    "atexit": "thread",
    "clone": "subprocess",
    "connect": "network",
    "fork": "subprocess",
    "getaddrinfo": "network",
    "open": "descriptors",
    "pipe": "descriptors",
    "raise": "syscall",
    "signal": "syscall",
    "socket": "network",
    "syscall": "syscall",
    "system": "subprocess",
}
"""Rule by identifier that is called and belongs to no object; these are common words."""

PREFIXES: tuple[tuple[str, str], ...] = (
    ("cudnn", "library-call"),
    ("cupti", "profiler"),
    ("cuProfiler", "profiler"),
    ("cudaProfiler", "profiler"),
    ("flashinfer", "library-call"),
    ("kopt_harness", "harness"),
)
"""Rule by the beginning of an identifier."""

HEADERS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"dlfcn\.h|link\.h"), "dynamic-library"),
    (re.compile(r"sys/ptrace\.h|sys/uio\.h"), "native-memory"),
    (re.compile(r"sys/socket\.h|netinet/.*|netdb\.h|curl/.*|arpa/inet\.h"), "network"),
    (re.compile(r"cupti.*"), "profiler"),
    (re.compile(r"(flashinfer|cudnn|flash_attn)\b.*"), "library-call"),
    (re.compile(r"/.*"), "files"),
    (re.compile(r".*\.\./\.\./.*"), "files"),
    (re.compile(r"sys/syscall\.h|seccomp\.h|linux/.*"), "syscall"),
)
"""Rule by the name of an included file."""

STRINGS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"/proc/[^/\s]+/(task/[^/\s]+/)?mem"), "process-memory"),
    (re.compile(r"/(proc|sys)/\S*|/dev/(?!null$)\S*"), "proc-files"),
    (re.compile(r"LD_PRELOAD|LD_AUDIT"), "environment"),
    (re.compile(r"\s*(syscall|int\s+\$0x80|svc\s+#?0).*"), "syscall"),
    (re.compile(r"\s*\.incbin.*"), "files"),
    (re.compile(r"lib(cublas|cudnn|cupti|cuda|c|python)[\w.-]*\.so[\d.]*"), "dynamic-library"),
    (re.compile(r".*\bkopt_(harness|controller)\b.*"), "harness"),
)
"""Patterns of whole strings; the first that matches counts."""

JOINERS: dict[str, frozenset[str]] = {
    "thread": frozenset({"join", "pthread_join"}),
    "unjoined-stream": frozenset(
        {"block", "cudaStreamSynchronize", "cudaStreamWaitEvent", "cuStreamSynchronize"}
    )
    | {"cuStreamWaitEvent", "cudaDeviceSynchronize"},
}
"""Identifiers that, anywhere in the file, take a rule back."""


def rule_of_word(word: str) -> str | None:
    """The rule that an identifier falls under wherever it stands."""
    rule = WORDS.get(word)
    return rule or next((r for prefix, r in PREFIXES if word.startswith(prefix)), None)
