"""Snapshots and transactions."""

import collections.abc
import threading

import pytest
import siltstone


def test_snapshot_does_not_change(table):
    table[b"k"] = b"then"
    with table.snapshot() as snapshot:
        table[b"k"] = b"now"
        table[b"l"] = b"new"
        assert snapshot[b"k"] == b"then" and b"l" not in snapshot
        assert list(snapshot.items()) == [(b"k", b"then")] and len(snapshot) == 1
        assert snapshot.get_many([b"k", b"l"]) == [b"then", None]
        assert isinstance(snapshot, collections.abc.Mapping)
        entries = snapshot.items()
    with pytest.raises(siltstone.InvalidError, match="closed"):
        snapshot[b"k"]
    assert list(entries) == [(b"k", b"then")]


def test_transaction_commits_at_the_end_of_the_block(table):
    table[b"a"] = b"1"
    with table.transaction(sync=True) as tx:
        tx[b"b"] = tx[b"a"]
        tx.put(b"c", b"2", ttl=1000)
        del tx[b"a"]
        assert list(tx) == [b"b", b"c"] and list(table) == [b"a"]
        with pytest.raises(KeyError):
            del tx[b"a"]
        tx.delete(b"a")
    assert list(table) == [b"b", b"c"]
    for attempt in (tx.commit, lambda: tx[b"a"], lambda: tx.put(b"a", b"")):
        with pytest.raises(siltstone.InvalidError, match="has ended"):
            attempt()
    tx.rollback()


def test_exception_discards_the_writes(table):
    with pytest.raises(ZeroDivisionError), table.transaction() as tx:
        tx[b"a"] = b"1"
        1 / 0
    with table.transaction() as tx:
        tx[b"a"] = b"1"
        tx.rollback()
    assert len(table) == 0


def test_conflict_names_the_key(table):
    table[b"k"] = b"1"
    with pytest.raises(siltstone.ConflictError, match="'k'") as caught:
        with table.transaction() as tx:
            tx[b"l"] = tx[b"k"]
            table[b"k"] = b"2"
    assert caught.value.key == b"k" and caught.value.retryable
    assert isinstance(caught.value, siltstone.Error) and b"l" not in table


def test_unread_rest_of_an_iterator_does_not_conflict(table):
    table.update({b"a": b"1", b"b": b"2", b"c": b"3"})
    with table.transaction() as tx:
        first = next(tx.items())
        table[b"c"] = b"9"
        tx[b"copy"] = first[1]
    assert table[b"copy"] == b"1"


def test_transact_counts_every_increment(table):
    def increment(tx):
        count = int(tx.get(b"count", b"0")) + 1
        tx[b"count"] = b"%d" % count
        return count

    def run():
        for _ in range(50):
            table.transact(increment, tries=1000)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert table[b"count"] == b"200"
    assert table.transact(increment) == 201


def test_transact_gives_up_and_passes_other_exceptions(table):
    attempts = []

    def disturbed(tx):
        attempts.append(tx.get(b"k"))
        table[b"k"] = b"%d" % len(attempts)
        tx[b"l"] = b"1"

    with pytest.raises(siltstone.ConflictError):
        table.transact(disturbed, tries=3)
    assert len(attempts) == 3 and b"l" not in table
    with pytest.raises(ZeroDivisionError):
        table.transact(lambda tx: 1 / 0)
