"""Ranges, merges, changes, sorted files, batches over tables."""

import math
import struct
import threading

import pytest
import siltstone


@pytest.fixture
def logged(db):
    return db.table("logged", options={"log_retention": "64MiB"})


def test_ranges_are_deleted_and_compacted(table):
    table.update((b"%02d" % number, b"v") for number in range(30))
    table.delete_range(b"05", b"10", sync=True)
    table.delete_range(prefix=b"2")
    with table.batch() as batch:
        batch.delete_range(end=b"02")
        batch[b"00"] = b"w"
    table.compact_range()
    table.compact_range(b"1", b"2")
    assert list(table) == [b"%02d" % number for number in (0, 2, 3, 4, *range(10, 20))]
    for attempt in (table.delete_range, table.compact_range, table.batch().delete_range):
        with pytest.raises(siltstone.InvalidError, match="inverted"):
            attempt(b"b", b"a")


def test_operands_are_merged(table):
    with pytest.raises(siltstone.InvalidError, match="nonsense"):
        table.set_merge_operator("nonsense")
    table.set_merge_operator("siltstone.counter")
    table.merge(b"k", struct.pack("<q", 3), sync=True)
    with table.batch() as batch:
        batch.merge(b"k", struct.pack("<q", 4))
    assert struct.unpack("<q", table[b"k"]) == (7,)


def test_options_change(table):
    assert table.set_options({"cache": "2MiB"}) == []
    with pytest.raises(siltstone.OptionsError, match="cache"):
        table.set_options({"cache": "many"})


def test_changes_show_every_operation(logged):
    logged.set_merge_operator("siltstone.append:2c")
    with logged.batch(sync=True) as batch:
        batch[b"a"] = b""
        batch.delete(b"b")
        batch.delete_range(b"c", b"d")
        batch.delete_range(b"x")
        batch.merge(b"e", b"1")
    logged.clear()
    with logged.changes() as changes:
        written, cleared = changes
        assert changes.next() is None and changes.position == cleared.sequence
    assert (written.kind, written.sequence, written.part) == ("write", 5, None)
    assert written.operations == [
        ("put", b"a", b"", None),
        ("delete", b"b", None, None),
        ("delete_range", b"c", b"d", None),
        ("delete_range", b"x", None, None),
        ("merge", b"e", b"1", None),
    ]
    assert (cleared.kind, cleared.operations) == ("cleared", [])
    batch = logged.batch()
    batch.append(written)
    assert len(batch) == 5
    with pytest.raises(siltstone.InvalidError, match="no write"):
        batch.append(cleared)
    with pytest.raises(siltstone.InvalidError, match="closed"):
        changes.next()


def test_feed_resumes_and_waits_for_durability(logged):
    logged.put(b"a", b"1", expires_at=4e9)
    logged[b"b"] = b"2"
    assert logged.changes().next() is None
    first = logged.changes(include_unsynced=True).next(60)
    assert first.operations == [("put", b"a", b"1", 4e9)]
    logged.sync()
    second = logged.changes(first.sequence).next(math.inf)
    assert second.operations[0][1] == b"b"
    assert logged.snapshot().sequence == second.sequence
    with pytest.raises(siltstone.ChangesUnavailableError, match="1000"):
        logged.changes(1000)
    with pytest.raises(siltstone.InvalidError, match="timeout"):
        logged.changes().next(-1)


def test_waiting_feed_ends_when_it_is_closed(logged):
    changes, errors = logged.changes(), []

    def wait():
        try:
            changes.next(math.inf)
        except siltstone.InvalidError as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    changes.close()
    thread.join()
    assert "closed" in str(errors[0])


def test_batches_of_several_tables_are_applied_together(db):
    first, second = db.table("first").batch(), db.table("second").batch()
    first[b"k"] = b"1"
    second[b"k"] = b"2"
    db.write([first, second], sync=True)
    assert (db["first"][b"k"], db["second"][b"k"]) == (b"1", b"2")
    assert len(first) == len(second) == 0
    memory = db.table("memory", "mica").batch()
    memory[b"k"] = first[b"k"] = b"3"
    with pytest.raises(siltstone.UnsupportedError, match="mica"):
        db.write([first, memory])
    assert len(first) == len(memory) == 1 and db["first"][b"k"] == b"1"


def test_sorted_files_are_ingested(tmp_path, table):
    table[b"b"] = b"old"
    path = tmp_path / "sorted"
    with siltstone.SortedFile(path) as file:
        file.put(b"a", b"1", ttl=1000)
        file.delete(b"b")
        with pytest.raises(siltstone.InvalidError):
            file.put(b"a", b"2")
    for attempt in (file.finish, lambda: file.put(b"c", b"")):
        with pytest.raises(siltstone.InvalidError, match="finished"):
            attempt()
    with pytest.raises(siltstone.InvalidError, match="mode"):
        table.ingest([path], mode="steal")
    assert table.ingest([path], mode="move")["entries"] == 2
    assert list(table.items()) == [(b"a", b"1")] and not path.exists()
    with pytest.raises(ZeroDivisionError), siltstone.SortedFile(path) as file:
        file.put(b"a", b"1")
        1 / 0
    assert not path.exists()
