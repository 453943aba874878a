"""Opening, closing, copies, damage."""

import gc
import math
import os
import pathlib
import sys
import threading

import pytest
import siltstone


def test_errors_have_kinds_and_attributes(tmp_path, db, table):
    with pytest.raises(siltstone.LockedError) as locked:
        siltstone.open(tmp_path / "store")
    assert locked.value.holder == os.getpid() and not locked.value.retryable
    with pytest.raises(siltstone.RefusedError, match="no such directory"):
        siltstone.open(tmp_path / "none", create=False)
    with pytest.raises(siltstone.OptionsError, match="nonsense"):
        db.table("x", "lsm", {"nonsense": "1", "memtable": "1X"})
    with pytest.raises(siltstone.InvalidError, match="engine"):
        db.table("t", "mica")
    with pytest.raises(siltstone.TooLargeError):
        table[bytes(1 << 20)] = b""
    with pytest.raises(siltstone.InvalidError, match="1 to 256"):
        siltstone.open(tmp_path / "x", threads=0)
    with pytest.raises(siltstone.InvalidError, match="idle"):
        siltstone.open(tmp_path / "x", idle=-1)


def test_closed_store_refuses_calls(tmp_path):
    with siltstone.open(str(tmp_path / "s"), threads=1, cache_bytes=1 << 20, idle=math.inf) as db:
        table = db.table("t", options={"memtable": "1MiB"})
        table[b"k"] = b"v"
        snapshot = table.snapshot()
    for attempt in (lambda: table[b"k"], lambda: snapshot[b"k"], lambda: db["t"], db.sync, db.disk_usage):
        with pytest.raises(siltstone.ClosedError):
            attempt()
    db.close()
    with siltstone.open(tmp_path / "s", create=False) as db:
        assert db["t"][b"k"] == b"v"


def test_dropped_store_is_closed(tmp_path):
    db = siltstone.open(tmp_path / "s")
    table = db.table("t")
    del db
    table[b"k"] = b"v"
    del table
    gc.collect()
    with siltstone.open(tmp_path / "s") as db:
        assert db["t"][b"k"] == b"v"


def test_checkpoint_is_a_store(tmp_path, db, table):
    table[b"k"] = b"v"
    db.sync()
    db.checkpoint(tmp_path / "copy")
    assert siltstone.verify(tmp_path / "copy")["intact"]
    with siltstone.open(tmp_path / "copy", read_only=True) as copy:
        assert copy["t"][b"k"] == b"v"
        with pytest.raises(siltstone.RefusedError, match="read-only"):
            copy["t"][b"k"] = b"w"


def test_statistics_and_maintenance(db, table):
    table.update((b"%d" % number, b"v") for number in range(1000))
    table.sync()
    table.flush()
    table.maintain()
    assert table.stats()["writes"] == 1000 and table.approximate_len() >= 1000
    assert list(db.disk_usage()) == ["t"] and db.disk_usage()["t"] > 1000
    assert db.verify()["tables"]["t"]["damage"] == []
    assert repr(table) == "<siltstone.Table 't' on lsm>"


def test_damage_is_an_exception_and_is_repaired(tmp_path):
    path = tmp_path / "s"
    with siltstone.open(path) as db:
        table = db.table("t", options={"triad.log": "off"})
        table.update((b"%05d" % number, b"a value of some length") for number in range(5000))
        table.flush()
    largest = max(pathlib.Path(path, "table-t").iterdir(), key=lambda file: file.stat().st_size)
    with open(largest, "r+b") as file:
        file.seek(10000)
        file.write(b"damage damage")
    report = siltstone.verify(path)
    assert not report["intact"] and report["tables"]["t"]["damage"][0]["file"] == largest.name
    with siltstone.open(path) as db, pytest.raises(siltstone.CorruptionError) as caught:
        len(db["t"])
    assert largest.name in caught.value.filename and caught.value.offset > 0
    report = siltstone.repair(path)
    assert not report["lossless"] and report["tables"]["t"]["losses"]
    with siltstone.open(path) as db:
        assert 4000 < len(db["t"]) < 5000


def test_other_threads_run_while_a_store_that_nobody_closed_ends(tmp_path):
    stores = [siltstone.open(tmp_path / str(number)) for number in range(10)]
    seen, exhausted = [], []

    def drop_until_seen():
        while stores:
            if seen:
                return
            stores.pop()
        exhausted.append(True)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e6)
    try:
        thread = threading.Thread(target=drop_until_seen)
        thread.start()
        seen.append(True)
        thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not exhausted


def test_other_threads_run_during_a_call(table):
    table.update((b"%d" % number, b"v") for number in range(1000))
    seen, exhausted = [], []

    def call_until_seen():
        for _ in range(10_000):
            if seen:
                return
            len(table)
        exhausted.append(True)

    # No thread is made to stop, so the main thread runs only once a call lets it.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e6)
    try:
        thread = threading.Thread(target=call_until_seen)
        thread.start()
        seen.append(True)
        thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not exhausted
