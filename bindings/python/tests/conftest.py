import pytest
import siltstone


@pytest.fixture
def db(tmp_path):
    with siltstone.open(tmp_path / "store") as db:
        yield db


@pytest.fixture
def table(db):
    return db.table("t")
