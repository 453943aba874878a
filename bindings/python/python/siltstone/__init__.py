"""Siltstone, an embedded key-value store with several storage engines.

>>> import siltstone, tempfile
>>> with siltstone.open(tempfile.mkdtemp()) as db:
...     stock = db.table("stock")
...     stock[b"apples"] = b"3"
...     stock[b"apples"]
b'3'

The type stubs (``__init__.pyi``) say what each method does; so does ``help(siltstone.Table)``.
"""

from collections.abc import Iterator, Mapping, MutableMapping

from ._siltstone import (
    Batch,
    BelowWatermarkError,
    Change,
    Changes,
    ChangesUnavailableError,
    ClosedError,
    ConflictError,
    CorruptionError,
    Db,
    DbReader,
    DbTransaction,
    Entries,
    Error,
    Event,
    ExpiredError,
    InvalidError,
    IoError,
    LockedError,
    MoveProgress,
    OptionsError,
    ReadOnlyError,
    RefusedError,
    Snapshot,
    SortedFile,
    Table,
    TableMove,
    TooLargeError,
    Transaction,
    UnsupportedError,
    open,
    open_reader,
    repair,
    verify,
)

__all__ = [
    "Batch",
    "BelowWatermarkError",
    "Change",
    "Changes",
    "ChangesUnavailableError",
    "ClosedError",
    "ConflictError",
    "CorruptionError",
    "Db",
    "DbReader",
    "DbTransaction",
    "Entries",
    "Error",
    "Event",
    "ExpiredError",
    "InvalidError",
    "IoError",
    "LockedError",
    "MoveProgress",
    "OptionsError",
    "ReadOnlyError",
    "RefusedError",
    "Snapshot",
    "SortedFile",
    "Table",
    "TableMove",
    "TooLargeError",
    "Transaction",
    "UnsupportedError",
    "open",
    "open_reader",
    "repair",
    "verify",
]

MutableMapping.register(Table)
Mapping.register(Snapshot)
Mapping.register(DbReader)
Iterator.register(Entries)
Iterator.register(Changes)
