"""The journal keeps whole records, in order, for one writer at a time."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kopt_harness.errors import InfraError, InvalidInputError, UsageError
from kopt_harness.journal import Journal, is_being_written, read_journal, read_selected
from kopt_harness.ledger import DictLedger, Ledger, recorded

_HOLD = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from kopt_harness.journal import Journal
with Journal(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def _filled(path: Path, count: int) -> bytes:
    with Journal(path) as journal:
        for index in range(count):
            journal.put(f"unit/{index}", {"value": index, "text": "é\n" * index})
    return path.read_bytes()


def test_records_come_back_after_reopening(tmp_path: Path) -> None:
    """What was put is there for the next process, under the same keys."""
    _filled(tmp_path / "journal.jsonl", 3)
    with Journal(tmp_path / "journal.jsonl") as journal:
        assert journal.completed() == ("unit/0", "unit/1", "unit/2")
        assert journal.get("unit/2") == {"value": 2, "text": "é\né\n"}
        assert journal.get("unit/3") is None


def test_each_record_carries_schema_and_position(tmp_path: Path) -> None:
    """A reader of another version can tell what it has before it."""
    lines = _filled(tmp_path / "journal.jsonl", 3).splitlines()
    heads = [json.loads(line) for line in lines]
    assert [(head["schema"], head["seq"]) for head in heads] == [(1, 0), (1, 1), (1, 2)]
    assert all(head["time"].endswith("+00:00") for head in heads)


def test_any_torn_end_loses_only_the_last_record(tmp_path: Path) -> None:
    """Cut at every byte, the journal holds exactly the records whose line is whole."""
    whole = _filled(tmp_path / "full.jsonl", 3)
    path = tmp_path / "journal.jsonl"
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        complete = whole[:cut].count(b"\n")
        assert len(read_journal(path)) == complete
        with Journal(path) as journal:
            assert len(journal.completed()) == complete
            journal.put("after", {"cut": cut})
        assert [record.key for record in read_journal(path)][-1] == "after"
        assert len(read_journal(path)) == complete + 1


def test_a_last_line_of_zero_bytes_is_discarded(tmp_path: Path) -> None:
    """A power cut can leave a line whose bytes never reached the disk."""
    path = tmp_path / "journal.jsonl"
    whole = _filled(path, 2)
    path.write_bytes(whole + b"\0" * 40 + b"\n")
    with Journal(path) as journal:
        assert journal.completed() == ("unit/0", "unit/1")
    assert path.read_bytes() == whole


def test_a_corrupt_tail_is_kept_aside(tmp_path: Path) -> None:
    """Nothing of it is lost, however long it is; the records before it are used."""
    path = tmp_path / "journal.jsonl"
    whole = _filled(path, 2)
    tails = (b'{"schema":1,"seq":2,"key"', b"\0" * 5000 + b"\nnot a record\n[1]\n\xff")
    for number, tail in enumerate(tails, 1):
        path.write_bytes(path.read_bytes() + tail)
        with Journal(path) as journal:
            assert journal.kept_aside == tmp_path / f"journal.jsonl.aside-{number}"
            assert journal.kept_aside.read_bytes() == tail
            assert len(journal.completed()) == 1 + number
            journal.put(f"after/{number}", {})
    assert path.read_bytes().startswith(whole)
    with Journal(path) as journal:
        assert journal.kept_aside is None
        assert len(journal.completed()) == 4


def test_damage_in_the_middle_is_an_error(tmp_path: Path) -> None:
    """A damaged record is never skipped: what follows may depend on it."""
    path = tmp_path / "journal.jsonl"
    lines = _filled(path, 3).splitlines(keepends=True)
    path.write_bytes(lines[0] + b'{"schema":1,"se\n' + lines[2])
    with pytest.raises(InvalidInputError, match="record 1 "):
        Journal(path)
    path.write_bytes(lines[0] + lines[2] + lines[2])
    with pytest.raises(InvalidInputError, match="record 1 "):
        read_journal(path)


def test_a_failed_open_leaves_no_lock(tmp_path: Path) -> None:
    """After the damage is repaired the same process can open the journal."""
    path = tmp_path / "journal.jsonl"
    whole = _filled(path, 2)
    path.write_bytes(b"nonsense\n" + whole)
    with pytest.raises(InvalidInputError):
        Journal(path)
    path.write_bytes(whole)
    with Journal(path) as journal:
        assert len(journal.completed()) == 2


def test_another_schema_is_refused(tmp_path: Path) -> None:
    """Records of a later version are not misread."""
    path = tmp_path / "journal.jsonl"
    path.write_bytes(_filled(path, 1).replace(b'"schema":1', b'"schema":2'))
    with pytest.raises(InvalidInputError, match="schema 2"):
        read_journal(path)


def test_a_key_is_written_once(tmp_path: Path) -> None:
    """A second value under a key would make the decision depend on which one is read."""
    with Journal(tmp_path / "journal.jsonl") as journal:
        journal.put("a", {"n": 1})
        with pytest.raises(ValueError, match="'a'"):
            journal.put("a", {"n": 2})
        assert journal.get("a") == {"n": 1}


def test_not_a_number_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """NaN is not JSON; the journal stays usable."""
    with Journal(tmp_path / "journal.jsonl") as journal:
        with pytest.raises(ValueError, match="JSON"):
            journal.put("a", {"n": float("nan")})
        journal.put("a", {"n": 0.5})
    assert [record.value for record in read_journal(tmp_path / "journal.jsonl")] == [{"n": 0.5}]


def test_two_writers_in_one_process_are_refused(tmp_path: Path) -> None:
    """The second writer gets a clear error, and the first keeps writing."""
    with Journal(tmp_path / "journal.jsonl") as journal:
        with pytest.raises(UsageError, match="another process"):
            Journal(tmp_path / "journal.jsonl")
        journal.put("a", {})


def test_a_killed_writer_leaves_no_lock(tmp_path: Path) -> None:
    """The lock lives as long as its process, not longer."""
    path = tmp_path / "journal.jsonl"
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(path)], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(UsageError):
            Journal(path)
        other.kill()
    with Journal(path) as journal:
        journal.put("a", {})


def test_who_looks_does_not_hinder_the_writer(tmp_path: Path) -> None:
    """A status that looks all the time neither takes the lock nor sees another looker."""
    path = tmp_path / "journal.jsonl"
    _filled(path, 1)
    with ThreadPoolExecutor(2) as pool:
        looks = [pool.submit(lambda: [is_being_written(path) for _ in range(300)]) for _ in "ab"]
        assert not any(any(look.result()) for look in looks)
    with Journal(path):
        assert is_being_written(path)


def test_a_full_disk_keeps_the_journal_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that the disk refuses half-way leaves no torn record, and no later one."""
    path = tmp_path / "journal.jsonl"
    real_write = os.write

    def half(descriptor: int, data: bytes) -> int:
        if len(data) > 200:
            return real_write(descriptor, data[:100])
        raise OSError(28, "No space left on device")

    with Journal(path) as journal:
        journal.put("a", {})
        before = path.read_bytes()
        monkeypatch.setattr("kopt_harness.journal.os.write", half)
        with pytest.raises(InfraError, match="No space left"):
            journal.put("b", {"text": "x" * 150})
        monkeypatch.undo()
        assert path.read_bytes() == before
        with pytest.raises(InfraError, match="takes no more records"):
            journal.put("c", {})


def _ledgers(folder: Path) -> list[Ledger]:
    return [DictLedger(), Journal(folder / "journal.jsonl"), DictLedger().scoped("deep/inside")]


def test_every_ledger_keeps_the_contract(tmp_path: Path) -> None:
    """Memory, file and view answer alike, and give a fresh value on each call."""
    for ledger in _ledgers(tmp_path):
        view = ledger.scoped("r1/gate")
        view.put("x", {"items": [1, 2]})
        value = ledger.get("r1/gate/x")
        assert value == {"items": [1, 2]}
        assert value is not None
        value["items"].append(3)
        assert view.get("x") == {"items": [1, 2]}
        assert view.scoped("x").get("y") is None
        if isinstance(ledger, Journal):
            ledger.close()


def test_recorded_computes_once_and_reads_back() -> None:
    """First run and resumed run see the same value, types included."""
    ledger = DictLedger()
    calls: list[int] = []

    def compute() -> dict[str, object]:
        calls.append(1)
        return {"pair": (1, 2)}

    first = recorded(ledger, "unit", compute)
    second = recorded(ledger, "unit", compute)
    assert first == second == {"pair": [1, 2]}
    assert len(calls) == 1


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=8,
)


@settings(max_examples=15, deadline=None)
@given(values=st.dictionaries(st.text(min_size=1), st.dictionaries(st.text(), _JSON), max_size=5))
def test_any_json_survives_the_file(
    values: dict[str, dict[str, object]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Keys and values of any text and number come back equal."""
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    with Journal(path) as journal:
        for key, value in values.items():
            journal.put(key, value)
    assert {record.key: record.value for record in read_journal(path)} == values


def test_threads_write_whole_records(tmp_path: Path) -> None:
    """Worker pairs that finish at the same moment do not mix their records."""
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal, ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: journal.put(f"unit/{n}", {"text": "x" * 500}), range(60)))
    assert {record.key for record in read_journal(path)} == {f"unit/{n}" for n in range(60)}


def test_selected_records_are_those_of_the_whole_journal(tmp_path: Path) -> None:
    """By key, in order, with their places and values; nothing of a file that is not there."""
    path = tmp_path / "journal.jsonl"
    _filled(path, 6)
    with Journal(path) as journal:
        journal.put('odd "key" \u00e9\\', {"n": 1})

    def wanted(key: str) -> bool:
        return key in ("unit/1", "unit/4") or key.startswith("odd")

    whole = read_journal(path)
    assert read_selected(path, wanted) == tuple(r for r in whole if wanted(r.key))
    assert len(read_selected(path, wanted)) == 3
    assert read_selected(tmp_path / "none.jsonl", wanted) == ()


def test_a_selected_record_that_is_damaged_is_an_error(tmp_path: Path) -> None:
    """Others behind it show that it is no tail; a torn tail is left out."""
    path = tmp_path / "journal.jsonl"
    lines = _filled(path, 3).splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][:-4] + b"\n" + lines[2])
    with pytest.raises(InvalidInputError, match="record 1"):
        read_selected(path, lambda key: key == "unit/1")
    path.write_bytes(lines[0] + lines[1] + lines[2][:-9])
    assert [record.key for record in read_selected(path, lambda _: True)] == ["unit/0", "unit/1"]


def test_records_that_are_not_selected_are_not_looked_into(tmp_path: Path) -> None:
    """That is why it is fast, and why it finds no damage in them."""
    path = tmp_path / "journal.jsonl"
    lines = _filled(path, 3).splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][:-4] + b"\n" + lines[2])
    assert [r.key for r in read_selected(path, lambda key: key == "unit/2")] == ["unit/2"]
