"""Snapshots and transactions over several tables, and writes that do not wait."""

import pytest
import siltstone


@pytest.fixture
def tables(db):
    return [db.table(name) for name in ("stock", "orders")]


def test_snapshots_of_several_tables_are_of_one_moment(db, tables):
    stock, orders = tables
    stock[b"pears"] = b"5"
    before = db.snapshots([orders, stock])
    stock[b"pears"], orders[b"1"] = b"4", b"pears"
    assert [dict(snapshot.items()) for snapshot in before] == [{}, {b"pears": b"5"}]
    with pytest.raises(siltstone.InvalidError, match="twice"):
        db.snapshots([stock, stock])
    with pytest.raises(siltstone.UnsupportedError):
        db.snapshots([db.table("s", "silt")])


def test_transaction_over_several_tables_is_whole_or_absent(db, tables):
    stock, orders = tables
    stock[b"pears"] = b"5"
    with db.transaction([stock, orders], sync=True) as tx:
        tx[orders][b"1"] = b"pears"
        tx[stock][b"pears"] = str(int(tx[stock][b"pears"]) - 1).encode()
        assert b"1" not in orders
    assert (orders[b"1"], stock[b"pears"]) == (b"pears", b"4")

    with pytest.raises(ZeroDivisionError), db.transaction(tables) as tx:
        tx[orders][b"2"] = b"plums"
        1 / 0
    with pytest.raises(siltstone.ConflictError), db.transaction(tables) as tx:
        tx[orders][b"2"] = tx[stock][b"pears"]
        stock[b"pears"] = b"9"
    assert dict(orders) == {b"1": b"pears"}


def test_part_of_a_transaction_over_several_tables_is_not_committed_alone(db, tables):
    stock, orders = tables
    tx = db.transaction(tables)
    tx[stock][b"a"] = b"1"
    with pytest.raises(siltstone.InvalidError, match="several tables commits"):
        tx[stock].commit()
    with pytest.raises(siltstone.InvalidError, match="'t' is not in this transaction"):
        tx[db.table("t")]
    tx[orders].rollback()
    with pytest.raises(siltstone.InvalidError, match="has ended"):
        tx.commit()
    assert b"a" not in stock
    tx = db.transaction(tables)
    tx.rollback()
    with pytest.raises(siltstone.InvalidError, match="has ended"):
        tx.commit()


def test_transact_over_several_tables_runs_again_after_a_conflict(db, tables):
    stock, orders = tables
    stock[b"pears"] = b"5"
    seen = []

    def order(tx):
        seen.append(tx[stock][b"pears"])
        if len(seen) == 1:
            stock[b"pears"] = b"7"
        tx[orders][b"1"] = seen[-1]
        return len(seen)

    assert db.transact(tables, order) == 2
    assert seen == [b"5", b"7"] and orders[b"1"] == b"7"


def test_try_write_writes_and_empties_the_batch_unless_it_waits(db, table):
    batch = table.batch()
    batch[b"a"] = b"1"
    assert batch.try_write() and len(batch) == 0 and table[b"a"] == b"1"
    # mica cannot say that a write does not wait.
    mica = db.table("m", "mica").batch()
    mica[b"a"] = b"1"
    assert not mica.try_write() and len(mica) == 1
