"""What a store is opened with: keys, merge operators, listeners; and readers beside it."""

import os
import subprocess
import sys

import pytest
import siltstone


class Longest:
    """Keeps the longest of the value and the operands."""

    name = "test.longest"

    def merge(self, key, value, operands):
        assert key == b"k" and all(isinstance(operand, bytes) for operand in operands)
        if b"refused" in operands:
            raise ValueError("no such operand")
        return max([value or b"", *operands], key=len)


class Partial(Longest):
    partial = 0

    def partial_merge(self, key, operands):
        Partial.partial += 1
        return max(operands, key=len)


def test_operator_of_the_program_merges_in_reads_flushes_and_later_opens(tmp_path):
    operators = {"t": Longest()}
    with siltstone.open(tmp_path, merge_operators=operators) as db:
        table = db.table("t")
        for operand in (b"a", b"ccc", b"bb"):
            table.merge(b"k", operand)
        assert table[b"k"] == b"ccc"
        table.flush()
    with siltstone.open(tmp_path, merge_operators=operators) as db:
        table = db["t"]
        table.merge(b"k", b"dddd")
        table.compact_range()
        assert dict(table) == {b"k": b"dddd"}
        with siltstone.open_reader(tmp_path, merge_operators=operators) as reader:
            assert reader["t"][b"k"] == b"dddd"


def test_operator_that_raises_fails_the_read_with_its_reason(tmp_path):
    with siltstone.open(tmp_path, merge_operators={"t": Longest()}) as db:
        db.table("t").merge(b"k", b"refused")
        with pytest.raises(siltstone.Error, match="no such operand"):
            db["t"][b"k"]


def test_partial_merge_folds_operands_under_a_snapshot(tmp_path):
    with siltstone.open(tmp_path, merge_operators={"t": Partial()}) as db:
        table = db.table("t")
        for operand in (b"a", b"bb", b"ccc"):
            table.merge(b"k", operand)
        table.flush()
        table.maintain()
        assert Partial.partial > 0 and table[b"k"] == b"ccc"


def test_operator_without_a_name_or_merge_is_refused(tmp_path):
    class Reserved(Longest):
        name = "siltstone.mine"

    with pytest.raises(siltstone.InvalidError, match="reserved"):
        siltstone.open(tmp_path, merge_operators={"t": Reserved()})
    with pytest.raises(AttributeError):
        siltstone.open(tmp_path, merge_operators={"t": object()})


def test_listener_gets_flushes_before_the_store_has_closed(tmp_path):
    events = []
    with siltstone.open(tmp_path, listener=events.append) as db:
        table = db.table("t")
        table[b"k"] = b"v" * 1000
        table.flush()
    begun, completed = [event for event in events if event.kind.startswith("flush")]
    assert (begun.kind, completed.kind) == ("flush_begun", "flush_completed")
    assert begun.job == completed.job and completed.table == "t" and not completed.failed
    assert completed.output_bytes > 0 and completed.duration > 0 and completed.at > 1.7e9
    assert "flush" in completed.message and "flush_completed" in repr(completed)


def test_listener_that_raises_is_reported_and_called_again(tmp_path, monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: reported.append(args.exc_type))

    def listener(event):
        raise ZeroDivisionError

    with siltstone.open(tmp_path, listener=listener) as db:
        db.table("t")[b"k"] = b"v"
        db["t"].flush()
    assert len(reported) >= 2 and set(reported) == {ZeroDivisionError}


def test_encrypted_store_opens_with_its_key_alone(tmp_path):
    key, other = os.urandom(32), os.urandom(32)
    secret = b"a sentence that is not on the disk"
    with siltstone.open(tmp_path, keys=[key]) as db:
        db.table("t").put(b"k", secret, sync=True)
        db["t"].flush()
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert files and not any(secret in content for content in files)
    for keys in ([], [other]):
        with pytest.raises(siltstone.Error):
            siltstone.open(tmp_path, keys=keys)
    with pytest.raises(siltstone.InvalidError, match="32 bytes"):
        siltstone.open(tmp_path, keys=[b"short"])
    with siltstone.open(tmp_path, keys=[other, key]) as db:
        assert db["t"][b"k"] == secret
    with siltstone.open_reader(tmp_path, keys=[other, key]) as reader:
        assert reader["t"][b"k"] == secret


def test_reader_in_another_process_catches_up_with_the_writer(tmp_path):
    program = """if True:
        import sys, siltstone
        with siltstone.open_reader(sys.argv[1]) as reader:
            table = reader["t"]
            assert list(reader) == ["t"] and "t" in reader and len(reader) == 1
            print(table[b"k"].decode(), flush=True)
            input()
            assert reader.catch_up() and not reader.catch_up()
            print(table[b"k"].decode(), reader["t"][b"k"].decode(), flush=True)
    """
    with siltstone.open(tmp_path) as db:
        table = db.table("t")
        table[b"k"] = b"1"
        reading = subprocess.Popen(
            [sys.executable, "-c", program, tmp_path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert reading.stdout.readline() == "1\n"
        table[b"k"] = b"2"
        assert reading.communicate("\n")[0] == "1 2\n"
        assert reading.returncode == 0


def test_reader_refuses_writes_and_missing_tables(tmp_path):
    with siltstone.open(tmp_path) as db:
        db.table("t")[b"k"] = b"1"
        reader = siltstone.open_reader(tmp_path)
        with pytest.raises(siltstone.RefusedError):
            reader["t"][b"k"] = b"2"
        with pytest.raises(KeyError):
            reader["u"]
        reader.close()
        with pytest.raises(siltstone.ClosedError):
            reader["t"]
