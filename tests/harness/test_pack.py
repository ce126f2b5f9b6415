import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kopt_harness.catalog import Catalog
from kopt_harness.errors import InvalidInputError, NotFoundError, UsageError
from kopt_harness.pack import load, pack, read_tunables, solution_json, unpack
from kopt_harness.root import Root
from kopt_harness.schema import BuildSpec, Solution, SourceFile

CHECKOUT = Path(__file__).resolve().parents[2]
CONFIGS = CHECKOUT.parent / "shared" / "data" / "configs"
CATALOG = Catalog(Root(CHECKOUT))

CONFIG = """
[solution]
name = "mine"
definition = "gdn_decode_qk4_v8_d128_k_last"
author = "me"

[build]
language = "python"
entry_point = "kernel.py::run"
"""
KERNEL = "def run(*arguments):\n    pass\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A valid solution folder with one source."""
    path = tmp_path / "mine"
    (path / "solution" / "python").mkdir(parents=True)
    (path / "config.toml").write_text(CONFIG)
    (path / "solution" / "python" / "kernel.py").write_text(KERNEL)
    return path


def sources_of(folder: Path) -> Path:
    """Where the sources of the fixture's folder are."""
    return folder / "solution" / "python"


def paths_in(solution: Solution) -> list[str]:
    """Paths of the sources of a solution."""
    return [source.path for source in solution.sources]


def a_solution(**changes: Any) -> Solution:
    """A small solution, with some fields changed."""
    spec = BuildSpec(language="python", entry_point="kernel.py::run")
    sources = (SourceFile(path="kernel.py", content=KERNEL),)
    fields = {"name": "n", "definition": "d", "author": "a", "spec": spec, "sources": sources}
    return Solution(**(fields | changes))


def test_packs_nested_sources_in_order(folder: Path) -> None:
    """Sources in subfolders are packed by their relative path, whatever the directory order."""
    (sources_of(folder) / "lib" / "deep").mkdir(parents=True)
    (sources_of(folder) / "lib" / "deep" / "a.py").write_text("A = 1\n")
    (sources_of(folder) / "lib" / "b.py").write_text("B = 1\n")
    solution, notes = pack(folder, known=CATALOG)
    assert paths_in(solution) == ["kernel.py", "lib/b.py", "lib/deep/a.py"]
    assert notes == ()


def test_source_text_is_kept_byte_for_byte(folder: Path) -> None:
    """Line endings and trailing blanks are not touched."""
    text = "def run():  \r\n\tpass\n\n\n# é\r"
    (sources_of(folder) / "kernel.py").write_bytes(text.encode())
    assert pack(folder).solution.sources[0].content == text


@pytest.mark.parametrize(
    "name",
    [
        "build.log",
        "BUILD.LOG",
        "kernel.py.prev",
        "kernel.pyc",
        "kernel.pyo",
        "kernel.py~",
        ".kernel.py.swp",
        "kernel.swp",
        "#kernel.py#",
        "kernel.py.bak",
        "kernel.py.orig",
        ".gitignore",
        "__pycache__/kernel.cpython-311.py",
        ".cache/kernel.py",
        "sub/.hidden/kernel.py",
    ],
)
def test_what_is_no_source_is_never_packed(folder: Path, name: str) -> None:
    """Logs, bytecode, .prev files, backups and hidden files stay out, even when binary."""
    extra = sources_of(folder) / name
    extra.parent.mkdir(parents=True, exist_ok=True)
    extra.write_bytes(b"\xff\xfe\x00")
    assert paths_in(pack(folder).solution) == ["kernel.py"]


def test_empty_files_are_never_packed(folder: Path) -> None:
    """An empty __init__.py is left out: FlashInfer-Bench refuses empty sources."""
    (sources_of(folder) / "__init__.py").write_text("")
    assert paths_in(pack(folder).solution) == ["kernel.py"]


@pytest.mark.parametrize("content", [b"\x7fELF\x02\x01\x00", b"\xff\xd8\xff", b"text\0more"])
def test_binaries_are_refused(folder: Path, content: bytes) -> None:
    """A build product among the sources is an error that names it."""
    (sources_of(folder) / "kernel.so").write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"kernel\.so.*binary"):
        pack(folder)


@pytest.mark.parametrize("kind", ["file", "folder", "outside", "dangling", "root", "config"])
def test_symlinks_are_refused(folder: Path, tmp_path: Path, kind: str) -> None:
    """No symlink is followed, wherever it points and whatever it stands for."""
    (tmp_path / "secret.py").write_text("SECRET = 1\n")
    sources = sources_of(folder)
    if kind == "file":
        (sources / "link.py").symlink_to(sources / "kernel.py")
    elif kind == "folder":
        (sources / "link").symlink_to(sources)
    elif kind == "outside":
        (sources / "link.py").symlink_to(tmp_path / "secret.py")
    elif kind == "dangling":
        (sources / "link.py").symlink_to(tmp_path / "absent.py")
    elif kind == "root":
        sources.rename(tmp_path / "python")
        sources.symlink_to(tmp_path / "python")
    else:
        (folder / "config.toml").rename(tmp_path / "config.toml")
        (folder / "config.toml").symlink_to(tmp_path / "config.toml")
    with pytest.raises(InvalidInputError, match="symlink"):
        pack(folder)


def test_special_files_are_refused(folder: Path) -> None:
    """A FIFO is refused without being opened, which would block."""
    os.mkfifo(sources_of(folder) / "pipe.py")
    with pytest.raises(InvalidInputError, match="not a regular file"):
        pack(folder)


def test_names_that_differ_in_case_are_refused(folder: Path) -> None:
    """Two sources that one file system cannot hold are an error."""
    (sources_of(folder) / "Kernel.py").write_text(KERNEL)
    with pytest.raises(InvalidInputError, match="case only"):
        pack(folder)


@pytest.mark.parametrize("name", [b"back\\slash.py", b"\xff.py"])
def test_odd_names_are_refused(folder: Path, name: bytes) -> None:
    """A name that another system reads differently cannot be packed."""
    descriptor = os.open(os.fsencode(sources_of(folder)) + b"/" + name, os.O_CREAT | os.O_WRONLY)
    os.write(descriptor, b"A = 1\n")
    os.close(descriptor)
    with pytest.raises(InvalidInputError):
        pack(folder)


def test_huge_sources_are_refused(folder: Path) -> None:
    """A source of many megabytes is data, not source."""
    (sources_of(folder) / "table.py").write_text("#" * (5 * 2**20))
    with pytest.raises(InvalidInputError, match=r"table\.py"):
        pack(folder)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('entry_point = "kernel.py::run"', 'entry_point = "kernel.py"', "file::function"),
        ('entry_point = "kernel.py::run"', 'entry_point = "kernel.py::a b"', "file::function"),
        ('entry_point = "kernel.py::run"', 'entry_point = "other.py::run"', "other.py"),
        ('entry_point = "kernel.py::run"', "", "entry_point"),
        ('language = "python"', 'language = "fortran"', "language"),
        ('language = "python"', "language = 3", "language"),
        ('language = "python"', 'langage = "python"', "langage"),
        ('author = "me"', "", "author"),
        ('author = "me"', 'author = " "', "author"),
        ('author = "me"', 'author = "me"\nlicence = "MIT"', "solution.licence"),
        ("[build]", "[build]\nbinding = 'pybind'", "binding"),
        ("[build]", "[build]\nsource_dir = '../elsewhere'", "source_dir"),
        ("[build]", "[build]\nsource_dir = '/etc'", "source_dir"),
        ("[build]", "[build]\nsource_dir = '.'", "source_dir"),
        ("[build]", "[build]\nsource_dir = 'absent'", "absent"),
        ("[build]", "[buidl]", "buidl"),
        ("[build]", "[build", "not valid TOML"),
        ("[build]", "[extra]\nx = 1\n[build]", "extra"),
        ("[build]", "[build]\ndestination_passing_style = 'maybe'", "destination_passing_style"),
        ("[build]", "tunables = 3\n[build]", "tunables"),
    ],
)
def test_malformed_configs_name_the_problem(folder: Path, old: str, new: str, message: str) -> None:
    """Every mistake in config.toml is one sentence that names it, with a hint, and exit code 2."""
    (folder / "config.toml").write_text(CONFIG.replace(old, new))
    with pytest.raises(UsageError) as caught:
        pack(folder, known=CATALOG)
    assert message in f"{caught.value.message} {caught.value.hint}"
    assert caught.value.hint
    assert "\n" not in caught.value.message
    assert caught.value.exit_code == 2


def test_unknown_key_suggests_the_known_one(folder: Path) -> None:
    """A misspelt key is answered with the nearest known one."""
    (folder / "config.toml").write_text(CONFIG.replace("entry_point", "entrypoint"))
    with pytest.raises(InvalidInputError) as caught:
        pack(folder)
    assert "'build.entrypoint'" in caught.value.message
    assert "did you mean 'entry_point'" in caught.value.hint


def test_unknown_definition_suggests_the_nearest(folder: Path) -> None:
    """A misspelt definition is answered with close matches."""
    (folder / "config.toml").write_text(CONFIG.replace("k_last", "k_first"))
    with pytest.raises(NotFoundError) as caught:
        pack(folder, known=CATALOG)
    assert "gdn_decode_qk4_v8_d128_k_last" in caught.value.hint


def test_alias_is_packed_as_the_id(folder: Path) -> None:
    """A config.toml may say the alias; the JSON has the id, and a note says so."""
    (folder / "config.toml").write_text(
        CONFIG.replace("gdn_decode_qk4_v8_d128_k_last", "gdn_decode")
    )
    solution, notes = pack(folder, known=CATALOG)
    assert solution.definition == "gdn_decode_qk4_v8_d128_k_last"
    assert len(notes) == 1


@pytest.mark.parametrize("missing", ["folder", "config", "sources", "all_sources_empty"])
def test_missing_parts_are_named(folder: Path, missing: str) -> None:
    """An absent folder, config.toml or source is an error that says where it was looked for."""
    if missing == "folder":
        folder = folder / "absent"
    elif missing == "config":
        (folder / "config.toml").unlink()
    elif missing == "sources":
        sources_of(folder).rename(folder / "solution" / "triton")
    else:
        (sources_of(folder) / "kernel.py").write_text("")
    with pytest.raises(NotFoundError) as caught:
        pack(folder)
    assert caught.value.hint
    if missing == "sources":
        assert "triton" in caught.value.hint


@pytest.mark.parametrize("place", ["python", "solution/python"])
def test_source_dir_is_found_in_both_places(folder: Path, place: str) -> None:
    """source_dir may name a folder beside config.toml or one below solution/."""
    (folder / "config.toml").write_text(CONFIG.replace("[build]", '[build]\nsource_dir = "python"'))
    target = folder / place
    if target != sources_of(folder):
        sources_of(folder).rename(target)
    solution, notes = pack(folder)
    assert paths_in(solution) == ["kernel.py"]
    assert place in notes[0]


def test_entry_function_that_is_nowhere_is_noted(folder: Path) -> None:
    """The packer does not run code, but says when the name does not occur."""
    (sources_of(folder) / "kernel.py").write_text("def forward():\n    pass\n")
    assert "'run'" in pack(folder).notes[0]


def test_name_override_does_not_change_the_hash(folder: Path) -> None:
    """The hash is of content: a renamed solution is the same one."""
    renamed = pack(folder, name="other").solution
    assert renamed.name == "other"
    assert renamed.sha256 == pack(folder).solution.sha256


def tuned(folder: Path, language: str = "python") -> None:
    """Declares two knobs."""
    knobs = (
        '[tunables.TILE]\nvalues = [16, 32]\ndefault = 32\ndirections = ["tiling"]\n'
        "[tunables.FAST]\nvalues = [true, false]\ndefault = false\n"
        '[tunables.TYPE]\nvalues = ["float", "double"]\ndefault = "float"\n'
        "[tunables.SCALE]\nvalues = [0.5, 1.0]\ndefault = 1.0\n"
    )
    (folder / "config.toml").write_text(CONFIG.replace("python", language) + knobs)


def test_tunables_become_a_module(folder: Path) -> None:
    """A python solution gets its values as constants of a generated module."""
    tuned(folder)
    solution = pack(folder, tunables={"TILE": 16}).solution
    generated = next(source for source in solution.sources if source.path == "tunables.py")
    namespace: dict[str, Any] = {}
    exec(generated.content, namespace)  # ours, and the point is what it defines
    names = ("TILE", "FAST", "TYPE", "SCALE")
    assert [namespace[name] for name in names] == [16, False, "float", 1.0]


def test_tunables_become_a_header(folder: Path) -> None:
    """A C++ solution gets its values as macros, strings bare and booleans as 1 and 0."""
    tuned(folder, "cpp")
    sources_of(folder).rename(folder / "solution" / "cpp")
    (folder / "solution" / "cpp" / "kernel.py").write_text("void run() {}\n")
    solution = pack(folder, tunables={"FAST": True}).solution
    header = next(source for source in solution.sources if source.path == "tunables.h").content
    for line in ("KOPT_TILE 32", "KOPT_FAST 1", "KOPT_TYPE float", "KOPT_SCALE 1.0"):
        assert f"#define {line}\n" in header


def test_tuned_solutions_differ_in_content(folder: Path) -> None:
    """Each choice of values is a solution of its own."""
    tuned(folder)
    hashes = {pack(folder, tunables={"TILE": value}).solution.sha256 for value in (16, 32)}
    assert len(hashes) == 2
    assert pack(folder).solution.sha256 in hashes


@pytest.mark.parametrize("chosen", [{"TILE": 64}, {"TILE": 32.0}, {"TILE": True}, {"WIDTH": 1}])
def test_undeclared_values_are_refused(folder: Path, chosen: dict[str, Any]) -> None:
    """Only a declared value of a declared knob can be chosen; 32.0 and true are no 32 and 1."""
    tuned(folder)
    with pytest.raises(InvalidInputError) as caught:
        pack(folder, tunables=chosen)
    assert "declared" in caught.value.hint


def test_values_for_a_solution_without_knobs_are_refused(folder: Path) -> None:
    """Values that would be dropped silently are an error."""
    with pytest.raises(InvalidInputError, match="TILE"):
        pack(folder, tunables={"TILE": 16})


@pytest.mark.parametrize("name", ["tunables.py", "Tunables.py"])
def test_a_file_in_the_way_of_the_generated_one_is_refused(folder: Path, name: str) -> None:
    """A hand-written tunables module next to declared knobs is ambiguous."""
    tuned(folder)
    (sources_of(folder) / name).write_text("TILE = 1\n")
    with pytest.raises(InvalidInputError, match="tunables"):
        pack(folder)


@pytest.mark.parametrize(
    "table",
    [
        "[tunables.tile]\nvalues = [1]\ndefault = 1",
        "[tunables.TILE]\nvalues = []\ndefault = 1",
        "[tunables.TILE]\nvalues = [1, 2]\ndefault = 3",
        "[tunables.TILE]\nvalues = [1, 2]\ndefault = 1.0",
        "[tunables.TILE]\nvalues = [1, 2.0]\ndefault = 1",
        "[tunables.TILE]\nvalues = [1, true]\ndefault = 1",
        "[tunables.TILE]\nvalues = [1, 1]\ndefault = 1",
        "[tunables.TILE]\nvalues = [nan]\ndefault = nan",
        '[tunables.TILE]\nvalues = ["a\\nb"]\ndefault = "a\\nb"',
        "[tunables.TILE]\nvalues = [[1]]\ndefault = [1]",
        "[tunables.TILE]\ndefault = 1",
        "[tunables.TILE]\nvalues = [1]",
        "[tunables.TILE]\nvalues = [1]\ndefault = 1\nstep = 2",
        "[tunables]\nTILE = 3",
    ],
)
def test_malformed_knobs_are_refused(folder: Path, table: str) -> None:
    """Names in capitals, values of one type, a default among them: anything else is an error."""
    (folder / "config.toml").write_text(f"{CONFIG}\n{table}\n")
    with pytest.raises(InvalidInputError) as caught:
        read_tunables(folder)
    assert caught.value.hint
    assert "\n" not in caught.value.message


def test_string_that_is_no_word_is_refused_in_cpp(folder: Path) -> None:
    """A value that would break the generated header is an error, not a broken build."""
    knob = '[tunables.TYPE]\nvalues = ["a b"]\ndefault = "a b"\n'
    (folder / "config.toml").write_text(CONFIG.replace("python", "cpp") + knob)
    sources_of(folder).rename(folder / "solution" / "cpp")
    with pytest.raises(InvalidInputError, match="one word"):
        pack(folder)


def test_unpacked_folder_packs_to_the_same_content(folder: Path, tmp_path: Path) -> None:
    """pack(unpack(x)) is x, name and author included."""
    tuned(folder)
    (sources_of(folder) / "lib").mkdir()
    (sources_of(folder) / "lib" / "a.py").write_bytes(b"A = '\xc3\xa9'\r\n")
    solution = pack(folder, tunables={"TILE": 16}, name='odd "name" \x7f').solution
    unpack(solution, tmp_path / "out")
    assert pack(tmp_path / "out").solution == solution


@settings(max_examples=40, deadline=None)
@given(
    text=st.text(st.characters(blacklist_categories=("Cs",)), min_size=1).filter(str.strip),
    style=st.booleans(),
    binding=st.sampled_from([None, "tvm-ffi", "torch"]),
    language=st.sampled_from(["python", "triton", "cpp", "cuda"]),
)
def test_any_solution_survives_the_round_trip(
    tmp_path_factory: pytest.TempPathFactory, text: str, style: bool, binding: Any, language: Any
) -> None:
    """Names, descriptions and specs of any content come back from a folder and from JSON."""
    spec = BuildSpec(
        language=language,
        entry_point="kernel.py::run",
        destination_passing_style=style,
        binding=binding,
        dependencies=("torch",),
        target_hardware=("cpu", "cuda"),
    )
    solution = a_solution(name=text, author=text, description=text, spec=spec)
    folder = tmp_path_factory.mktemp("round") / "out"
    unpack(solution, folder)
    assert pack(folder).solution == solution
    file = folder.parent / "out.json"
    file.write_text(solution_json(solution))
    assert load(file).solution == solution


def test_unpack_leaves_a_non_empty_folder_alone(tmp_path: Path) -> None:
    """Nothing is overwritten."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("x")
    with pytest.raises(InvalidInputError, match="not empty"):
        unpack(a_solution(), tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["precious"]


@pytest.mark.parametrize("kind", ["file", "symlink", "below_a_file"])
def test_unpack_refuses_what_is_no_folder(tmp_path: Path, kind: str) -> None:
    """A file or a symlink in the way is an error, and stays as it is."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "symlink").symlink_to(tmp_path)
    target = tmp_path / "file" / "out" if kind == "below_a_file" else tmp_path / kind
    with pytest.raises(InvalidInputError):
        unpack(a_solution(), target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "symlink"]


def test_unpack_into_an_empty_folder_has_usual_permissions(tmp_path: Path) -> None:
    """The folder is readable like any other, not private to the temporary one."""
    (tmp_path / "out").mkdir()
    unpack(a_solution(), tmp_path / "out")
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o755
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_unpack_writes_nothing_that_would_not_pack_again(tmp_path: Path) -> None:
    """A solution whose source packing leaves out is refused, and no folder appears."""
    sources = (*a_solution().sources, SourceFile(path="x.log", content="y"))
    with pytest.raises(InvalidInputError, match="leaves out"):
        unpack(a_solution(sources=sources), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def write_json(path: Path, **changes: Any) -> Path:
    """A solution JSON with some fields changed; None removes one."""
    document = a_solution(definition="gdn_decode").model_dump(mode="json") | changes
    path.write_text(json.dumps({k: v for k, v in document.items() if v is not None}))
    return path


def test_unknown_json_keys_are_noted(tmp_path: Path) -> None:
    """Fields of newer writers are left out with a note, at every level."""
    spec = {"language": "python", "entry_point": "kernel.py::run", "compile_options": ["-O3"]}
    sources = [{"path": "kernel.py", "content": KERNEL, "sha": "x"}]
    file = write_json(tmp_path / "s.json", spec=spec, sources=sources, score=3)
    solution, notes = load(file, known=CATALOG)
    assert solution.definition == "gdn_decode_qk4_v8_d128_k_last"
    said = " ".join(notes)
    for key in ("score", "spec.compile_options", "sources.sha"):
        assert key in said


def test_json_nulls_mean_absent(tmp_path: Path) -> None:
    """Other writers put null where a field has no value."""
    document = a_solution().model_dump(mode="json")
    document |= {"description": None, "spec": document["spec"] | {"dependencies": None}}
    (tmp_path / "s.json").write_text(json.dumps(document))
    assert load(tmp_path / "s.json").solution == a_solution()


def test_json_sources_that_are_no_sources_are_left_out(tmp_path: Path) -> None:
    """Logs and empty files of a JSON are left out with a note, as when a folder is packed."""
    sources = [
        {"path": "kernel.py", "content": KERNEL},
        {"path": "run.log", "content": "x"},
        {"path": "__init__.py", "content": ""},
    ]
    solution, notes = load(write_json(tmp_path / "s.json", sources=sources))
    assert paths_in(solution) == ["kernel.py"]
    assert len(notes) == 2


@pytest.mark.parametrize(
    "path", ["../x.py", "/etc/x.py", "a/../../x.py", "a\\x.py", "a//x.py", "", "..", "/.x/y.log"]
)
def test_json_paths_that_leave_the_solution_are_refused(tmp_path: Path, path: str) -> None:
    """A JSON cannot name a file outside the folder that it is unpacked to."""
    sources = [{"path": "kernel.py", "content": KERNEL}, {"path": path, "content": "x"}]
    with pytest.raises(InvalidInputError):
        load(write_json(tmp_path / "s.json", sources=sources))


@pytest.mark.parametrize("second", ["kernel.py", "KERNEL.py"])
def test_json_duplicates_are_refused(tmp_path: Path, second: str) -> None:
    """Two sources of one path, or of paths that differ in case only, are an error."""
    sources = [{"path": name, "content": KERNEL} for name in ("kernel.py", second)]
    with pytest.raises(InvalidInputError):
        load(write_json(tmp_path / "s.json", sources=sources))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        "null",
        '"x"',
        "{}",
        '{"spec": []}',
        '{"name": 3, "spec": {}, "sources": []}',
        '{"sources": [1]}',
        "[" * 100_000,
    ],
)
def test_what_is_no_solution_json_is_refused(tmp_path: Path, text: str) -> None:
    """Any JSON that is no solution, and any text that is no JSON, is one clear error."""
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(UsageError) as caught:
        load(tmp_path / "s.json")
    assert caught.value.hint
    assert "\n" not in caught.value.message


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    """A missing file, binary data and a wrong entry are errors, not tracebacks."""
    with pytest.raises(NotFoundError):
        load(tmp_path / "absent.json")
    (tmp_path / "b.json").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInputError, match="UTF-8"):
        load(tmp_path / "b.json")
    with pytest.raises(InvalidInputError, match=r"other\.py"):
        load(
            write_json(
                tmp_path / "s.json", spec={"language": "python", "entry_point": "other.py::run"}
            )
        )


@pytest.mark.skipif(not CONFIGS.is_dir(), reason="the collection of real configs is not here")
@pytest.mark.parametrize("config", sorted(CONFIGS.glob("*.toml")), ids=lambda path: path.stem)
def test_configs_as_people_write_them(tmp_path: Path, config: Path) -> None:
    """Good files pack, odd ones pack with notes, bad ones say what is wrong."""
    text = config.read_text()
    (tmp_path / "config.toml").write_text(text)
    values = dict(
        line.split(" = ", 1) for line in text.replace('"', "").splitlines() if " = " in line
    )
    entry = values["entry_point"].partition("::")[0]
    folder = tmp_path / values.get("source_dir", f"solution/{values['language']}")
    folder.mkdir(parents=True)
    (folder / entry).write_text("source\n")
    if config.stem.startswith("bad"):
        with pytest.raises(UsageError, match="file::function"):
            pack(tmp_path)
        return
    solution, notes = pack(tmp_path)
    assert solution.definition == values["definition"]
    mentions = [note for note in notes if "does not mention" not in note]
    assert bool(mentions) == config.stem.startswith("odd")
    unpack(solution, tmp_path / "out")
    assert pack(tmp_path / "out").solution == solution
