"""Moves of tables to other engines."""

import pytest
import siltstone


@pytest.fixture
def words(db):
    words = db.table("words")
    words.update((b"%08d" % i, b"1") for i in range(1000))
    return words


def test_table_in_use_moves_to_another_engine(db, words):
    seen = []
    with db.begin_move("words", "silt") as moving:
        moving.copy(seen.append)
        assert seen and (seen[-1].rows, seen[-1].restarts) == (1000, 0)
        assert "rows=1000" in repr(seen[-1])
        words[b"meanwhile"] = b"2"
        del words[b"00000007"]
        moved = moving.finish(seen.append)
        with pytest.raises(siltstone.InvalidError, match="finished"):
            moving.finish()
    assert (moved.engine, moved[b"meanwhile"], b"00000007" in moved) == ("silt", b"2", False)
    assert db.tables()["words"]["engine"] == "silt"
    with pytest.raises(siltstone.ClosedError):
        words[b"k"] = b"v"
    assert db["words"][b"00000008"] == b"1"


def test_move_that_is_not_finished_leaves_the_table(db, words):
    def stop(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), db.begin_move("words", "trie") as moving:
        moving.copy(stop)
    with db.begin_move("words", "lsm", {"memtable": "8MiB"}) as moving:
        with pytest.raises(KeyboardInterrupt):
            moving.copy(stop)
        with pytest.raises(siltstone.InvalidError, match="words"):
            db.begin_move("words", "silt")
        with pytest.raises(KeyboardInterrupt):
            moving.finish(stop)
        with pytest.raises(siltstone.InvalidError, match="finished or cancelled"):
            moving.copy()
    words[b"k"] = b"v"
    assert (db.tables()["words"]["engine"], len(words)) == ("lsm", 1001)
    with pytest.raises(siltstone.InvalidError, match="none"):
        db.begin_move("none", "silt")
    with pytest.raises(siltstone.OptionsError, match="memtable"):
        db.begin_move("words", "lsm", {"memtable": "many"})
