"""Stores and tables as mappings."""

import collections.abc
import threading
import time

import pytest
import siltstone


def test_table_behaves_like_a_dict(table):
    expected = {}
    for number in range(300):
        key, value = b"%03d" % (number * 7 % 100), b"%d" % number
        table[key] = expected[key] = value
        if number % 3 == 0:
            assert table.pop(key) == expected.pop(key)
    assert dict(table.items()) == expected
    assert list(table) == sorted(expected)
    assert list(table.values()) == [expected[key] for key in sorted(expected)]
    assert len(table) == len(expected)
    for number in range(100):
        key = b"%03d" % number
        assert (key in table) == (key in expected)
        assert table.get(key) == expected.get(key)
    assert isinstance(table, collections.abc.MutableMapping)


def test_missing_keys_raise_key_errors(table):
    for attempt in (
        lambda: table[b"k"],
        lambda: table.pop(b"k"),
        lambda: table.__delitem__(b"k"),
        table.popitem,
    ):
        with pytest.raises(KeyError):
            attempt()
    assert table.pop(b"k", None) is None
    assert table.get(b"k", 7) == 7
    assert table.pop_first() is None
    table.delete(b"k")
    assert not table


def test_ranges_have_bounds_prefixes_and_both_directions(table):
    table.update({b"a": b"1", b"b1": b"2", b"b2": b"3", b"\xff": b"4"})
    assert list(table.keys(prefix=b"b")) == [b"b1", b"b2"]
    assert list(table.keys(prefix=b"\xff")) == [b"\xff"]
    assert list(table.keys(start=b"b1", end=b"\xff")) == [b"b1", b"b2"]
    assert list(table.values(reverse=True)) == [b"4", b"3", b"2", b"1"]
    assert list(table.items(end=b"b2", reverse=True)) == [(b"b1", b"2"), (b"a", b"1")]
    with pytest.raises(siltstone.InvalidError, match="prefix"):
        table.keys(prefix=b"b", start=b"a")
    with pytest.raises(siltstone.InvalidError, match="inverted"):
        table.keys(start=b"b", end=b"a")
    assert (table.pop_first(), table.popitem()) == ((b"a", b"1"), (b"\xff", b"4"))


def test_iterator_shows_the_table_as_of_its_creation(table):
    table.update((b"%04d" % number, b"old") for number in range(500))
    entries = table.items()
    assert iter(entries) is entries and isinstance(entries, collections.abc.Iterator)
    assert next(entries) == (b"0000", b"old")
    table.clear()
    assert sum(value == b"old" for _, value in entries) == 499
    assert next(entries, None) is None
    assert len(table) == 0


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_all_kinds_of_bytes_are_keys_and_values(table, kind):
    table[kind(b"k\0")] = kind(b"v\xff")
    assert table[kind(b"k\0")] == b"v\xff"
    table[kind(b"")] = kind(b"")
    assert table[b""] == b""
    with pytest.raises(TypeError, match=r"not str; encode text with \.encode\(\)"):
        table["k"]
    with pytest.raises(TypeError, match="not int"):
        table[b"k"] = 7


def test_values_expire(table):
    table.put(b"stale", b"1", expires_at=1.0)
    table.put(b"fresh", b"2", ttl=1000)
    assert table.get(b"stale") is None and table[b"fresh"] == b"2"
    assert table.expires_at(b"fresh") == pytest.approx(time.time() + 1000, abs=100)
    assert table.expires_at(b"stale") is None
    with pytest.raises(siltstone.InvalidError, match="not both"):
        table.put(b"k", b"v", ttl=1, expires_at=1)
    with pytest.raises(siltstone.InvalidError):
        table.put(b"k", b"v", ttl=float("nan"))
    # Beyond the times of the store, which are 64-bit milliseconds: not in their past.
    table.put(b"ever", b"3", ttl=2.0**64 / 1000 + 100)
    table.put(b"late", b"4", expires_at=2.0**64 / 1000 + 100)
    assert (table[b"ever"], table[b"late"]) == (b"3", b"4")


def test_updates_of_one_key_are_atomic(table):
    assert table.setdefault(b"k", b"1") == b"1"
    assert table.setdefault(b"k", b"2") == b"1"
    assert table.compare_and_swap(b"k", b"1", b"3")
    assert not table.compare_and_swap(b"k", b"1", b"4")
    assert table.compare_and_swap(b"k", b"3", None)
    assert table.compare_and_swap(b"k", None, b"5")
    assert table.get_many([b"none", b"k"]) == [None, b"5"]
    assert table.get_many(key for key in (b"k", bytearray(b"k"))) == [b"5", b"5"]
    assert table.get_many({b"k"}) == table.get_many({b"k": 1}.keys()) == [b"5"]
    with pytest.raises(TypeError, match="not int"):
        table.get_many(b"k")


def test_batch_is_applied_at_the_end_or_not_at_all(table):
    with table.batch(sync=True) as batch:
        batch[b"a"] = b"1"
        batch.put(b"b", b"2", ttl=1000)
        batch.delete(b"c")
        del batch[b"d"]
        assert len(batch) == 4 and len(table) == 0
    assert len(table) == 2 and len(batch) == 0
    with pytest.raises(ZeroDivisionError), table.batch() as batch:
        batch[b"a"] = b"9"
        1 / 0
    assert table[b"a"] == b"1"
    batch[b"a"] = b"8"
    batch.clear()
    batch[b"b"] = b"3"
    batch.write()
    assert (table[b"a"], table[b"b"]) == (b"1", b"3")


def test_store_is_a_mapping_of_tables(db):
    db.table("t")[b"k"] = b"v"
    db.table("m", "mica")
    assert list(db) == ["m", "t"] and len(db) == 2 and "t" in db and "x" not in db
    assert db["t"][b"k"] == b"v" and db["t"].name == "t" and db["m"].engine == "mica"
    assert db.tables()["m"] == {"engine": "mica", "options": {}}
    with pytest.raises(KeyError, match="no table 'x'"):
        db["x"]
    del db["m"]
    with pytest.raises(KeyError):
        del db["m"]
    db.rename("t", "u")
    assert list(db) == ["u"] and db["u"][b"k"] == b"v"


def test_unordered_engines_have_no_ranges(db):
    memory = db.table("memory", "mica")
    memory.update({b"a": b"1", b"b": b"2"})
    assert sorted(memory.items()) == [(b"a", b"1"), (b"b", b"2")]
    for attempt in (
        lambda: memory.keys(prefix=b"a"),
        lambda: next(memory.keys(reverse=True)),
        memory.snapshot,
        memory.transaction,
    ):
        with pytest.raises(siltstone.UnsupportedError, match="mica"):
            attempt()
    assert memory.compare_and_swap(b"a", b"1", b"3")


def test_threads_share_a_table(table):
    def write(name):
        for number in range(200):
            table[b"%d/%d" % (name, number)] = b"v"

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(table) == 800


def test_threads_share_an_iterator(table):
    keys = [b"%05d" % number for number in range(5000)]
    with table.batch() as batch:
        for key in keys:
            batch[key] = b"v"
    shared, parts = iter(table), [[] for _ in range(4)]
    threads = [threading.Thread(target=part.extend, args=(shared,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(sum(parts, [])) == keys and all(part == sorted(part) for part in parts)
