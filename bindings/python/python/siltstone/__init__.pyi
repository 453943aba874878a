from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, Generic, Literal, Protocol, TypeVar, Union, final, overload, type_check_only

from typing_extensions import Self, TypeAlias

_T = TypeVar("_T")
_Bytes: TypeAlias = Union[bytes, bytearray, memoryview]
_Path: TypeAlias = Union[str, PathLike[str]]

def open(
    path: _Path,
    *,
    create: bool = True,
    read_only: bool = False,
    direct_reads: bool = False,
    threads: int | None = None,
    max_open_files: int | None = None,
    cache_bytes: int | None = None,
    idle: float = 300.0,
    transaction_memory_bytes: int | None = None,
    keys: Sequence[_Bytes] | None = None,
    merge_operators: Mapping[str, MergeOperator] | None = None,
    listener: Callable[[Event], object] | None = None,
) -> Db:
    """Open the store in a directory, and create it if the directory is missing or empty.

    create                    False: open an existing store only
    read_only                 nothing in the directory changes, and writes fail
    direct_reads              reads bypass the page cache
    threads                   for background work, 1 to 256; default one per core, up to 4
    max_open_files            default 256
    cache_bytes               one block cache for all tables; default one per table
    idle                      seconds after which an unused snapshot or transaction expires; math.inf: never
    transaction_memory_bytes  per table, for keys written while transactions are open; default 32 MiB
    keys                      of an encrypted store, 32 bytes each: the current one, then those of older files
    merge_operators           by the name of the table, on lsm: needed at each open
    listener                  called with each Event on a thread of its own; Db.close waits for it

    Raises RefusedError, LockedError, CorruptionError, IoError.
    """

def open_reader(
    path: _Path,
    *,
    direct_reads: bool = False,
    cache_bytes: int | None = None,
    keys: Sequence[_Bytes] | None = None,
    merge_operators: Mapping[str, MergeOperator] | None = None,
) -> DbReader:
    """Open a store for reading, also while another process has it open for writing.

    Nothing is locked or written. The arguments are those of open.
    """

def verify(path: _Path) -> dict[str, Any]:
    """Read and check every byte of a store that no process has open; changes nothing.

    Returns {"intact": bool, "catalogue": [damage], "unlisted": [table], "tables": {name: report}}.
    """

def repair(path: _Path) -> dict[str, Any]:
    """Repair a store that no process has open, as far as possible. Damaged files are kept.

    Returns {"lossless": bool, "catalogue": [line], "tables": {name: {"lines": ..., "losses": ...}}}.
    """

@final
class Db:
    """An open store: a mapping from names to tables. As a context manager it closes itself."""

    def __getitem__(self, name: str, /) -> Table:
        """Open an existing table."""
    def __delitem__(self, name: str, /) -> None:
        """Remove a table with all of its files."""
    def __contains__(self, name: str, /) -> bool: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str]: ...
    def table(
        self, name: str, engine: str = "lsm", options: Mapping[str, str] | None = None
    ) -> Table:
        """Open a table, and create it if there is none, e.g. with {"memtable": "8MiB"}.

        Options of an existing table that differ are applied or refused.

        Raises OptionsError with every mistake; InvalidError if the table is on another engine.
        """
    def rename(self, name: str, new_name: str) -> None:
        """Rename a table of which no object exists."""
    def begin_move(
        self, name: str, engine: str, options: Mapping[str, str] | None = None
    ) -> TableMove:
        """Begin to move a table to another engine, or to other options, while it is in use.

        Nothing is copied yet. Snapshots, the history of skimpy and change feeds do not move.

        Raises InvalidError if there is no such table, or if it is moving already; OptionsError;
        UnsupportedError for a table with a merge operator and an engine without merges.
        """
    def tables(self) -> dict[str, dict[str, Any]]:
        """The engine and the options of each table."""
    def snapshots(self, tables: Sequence[Table]) -> list[Snapshot]:
        """Snapshots of several tables as of one moment, in the order of the tables. lsm only."""
    def transaction(self, tables: Sequence[Table], *, sync: bool = False) -> DbTransaction:
        """Begin a transaction over several tables: `with db.transaction([a, b]) as tx`. lsm only."""
    def transact(
        self,
        tables: Sequence[Table],
        work: Callable[[DbTransaction], _T],
        *,
        tries: int = 16,
        sync: bool = False,
    ) -> _T:
        """Run work with a transaction over several tables; as Table.transact."""
    def disk_usage(self) -> dict[str, int]:
        """The bytes of the files of each table."""
    def write(self, batches: list[Batch], *, sync: bool = False) -> None:
        """Apply batches of several tables, all of them or none. lsm, trie and silt only."""
    def sync(self) -> None:
        """Make every write that has returned, to any table, durable against a power cut."""
    def checkpoint(self, path: _Path) -> None:
        """Copy the store into a new directory while it is in use; links files where it can."""
    def verify(self) -> dict[str, Any]:
        """Read and check every byte; as the function verify."""
    def close(self) -> None:
        """Make everything durable and release the directory. Other objects raise ClosedError then."""
    def __enter__(self) -> Self: ...
    def __exit__(self, exception_type: object, *_rest: object) -> Literal[False]: ...

class _Reads:
    def __getitem__(self, key: _Bytes, /) -> bytes: ...
    def __contains__(self, key: _Bytes, /) -> bool: ...
    def __len__(self) -> int:
        """The number of keys, counted by a scan."""
    def __bool__(self) -> bool:
        """Whether there is a key; costs as much as finding the first one."""
    def __iter__(self) -> Entries[bytes]: ...
    @overload
    def get(self, key: _Bytes, default: None = None) -> bytes | None: ...
    @overload
    def get(self, key: _Bytes, default: _T) -> bytes | _T: ...
    def get_many(self, keys: Iterable[_Bytes]) -> list[bytes | None]:
        """The values of keys in their order. On lsm all are of one moment."""
    def expires_at(self, key: _Bytes) -> float | None:
        """When the value of a key expires, in seconds since 1970. None: never, or no value."""
    def items(
        self,
        *,
        prefix: _Bytes | None = None,
        start: _Bytes | None = None,
        end: _Bytes | None = None,
        reverse: bool = False,
    ) -> Entries[tuple[bytes, bytes]]:
        """The entries from start to before end, or with a prefix. Bounds and order: lsm only."""
    def keys(
        self,
        *,
        prefix: _Bytes | None = None,
        start: _Bytes | None = None,
        end: _Bytes | None = None,
        reverse: bool = False,
    ) -> Entries[bytes]: ...
    def values(
        self,
        *,
        prefix: _Bytes | None = None,
        start: _Bytes | None = None,
        end: _Bytes | None = None,
        reverse: bool = False,
    ) -> Entries[bytes]: ...

@final
class Table(_Reads):
    """A mapping from bytes to bytes. Threads may share it.

    Writes are buffered: they survive a crash of the process, and with sync=True also a power cut.
    """

    @property
    def name(self) -> str: ...
    @property
    def engine(self) -> str: ...
    def __setitem__(self, key: _Bytes, value: _Bytes, /) -> None: ...
    def __delitem__(self, key: _Bytes, /) -> None:
        """Remove a key that exists, atomically; else KeyError. Faster: delete."""
    def put(
        self,
        key: _Bytes,
        value: _Bytes,
        *,
        ttl: float | None = None,
        expires_at: float | None = None,
        sync: bool = False,
    ) -> None:
        """Set the value of a key, until ttl seconds from now or until a time in seconds since 1970."""
    def delete(self, key: _Bytes, *, sync: bool = False) -> None:
        """Remove a key. A missing one is not an error."""
    @overload
    def pop(self, key: _Bytes) -> bytes: ...
    @overload
    def pop(self, key: _Bytes, default: _T, /) -> bytes | _T: ...
    def popitem(self) -> tuple[bytes, bytes]:
        """Remove the last entry and return it; KeyError without one. lsm only."""
    def pop_first(self) -> tuple[bytes, bytes] | None: ...
    def pop_last(self) -> tuple[bytes, bytes] | None: ...
    def setdefault(self, key: _Bytes, default: _Bytes) -> bytes: ...
    def compare_and_swap(
        self, key: _Bytes, expected: _Bytes | None, new: _Bytes | None
    ) -> bool:
        """Set a key to new if its value is expected, and return whether it was. None: no value."""
    def update(
        self,
        entries: Mapping[bytes, _Bytes] | Iterable[tuple[_Bytes, _Bytes]],
        *,
        sync: bool = False,
    ) -> None:
        """Set all entries, atomically."""
    def batch(self, *, sync: bool = False) -> Batch: ...
    def delete_range(
        self,
        start: _Bytes | None = None,
        end: _Bytes | None = None,
        *,
        prefix: _Bytes | None = None,
        sync: bool = False,
    ) -> None:
        """Remove the keys from start to before end, or with a prefix, at a constant cost. lsm only."""
    def set_merge_operator(self, name: str) -> None:
        """Set the operator of merge: "siltstone.counter" or "siltstone.append:SEPARATOR" in hex. lsm only."""
    def merge(self, key: _Bytes, operand: _Bytes, *, sync: bool = False) -> None:
        """Merge an operand into a key without reading its value. lsm only."""
    def changes(self, since: int = 0, *, include_unsynced: bool = False) -> Changes:
        """Follow the changes after a sequence number; the option log_retention keeps them. lsm only.

        Raises ChangesUnavailableError if the log does not reach back so far.
        """
    def ingest(
        self, paths: Sequence[_Path], *, mode: Literal["copy", "link", "move"] = "copy"
    ) -> dict[str, Any]:
        """Make files of SortedFile a part of the table, all at once and durably. lsm only."""
    def compact_range(
        self,
        start: _Bytes | None = None,
        end: _Bytes | None = None,
        *,
        prefix: _Bytes | None = None,
    ) -> None:
        """Compact a range of keys down to their deepest level. lsm only."""
    def set_options(self, options: Mapping[str, str]) -> list[str]:
        """Change options, durably. Returns the names of those that take effect at the next open."""
    def snapshot(self) -> Snapshot:
        """The table at this moment. lsm and skimpy only."""
    def transaction(self, *, sync: bool = False) -> Transaction:
        """Begin a transaction: `with table.transaction() as tx`. lsm and skimpy only."""
    def transact(
        self, work: Callable[[Transaction], _T], *, tries: int = 16, sync: bool = False
    ) -> _T:
        """Run work with a transaction, commit it, and return what work returned.

        After ConflictError and ExpiredError it runs again, up to tries times with growing pauses.
        Any other exception of work discards the writes and is raised.
        """
    def clear(self) -> None:
        """Remove every key, durably."""
    def sync(self) -> None:
        """Make every write that has returned durable against a power cut."""
    def flush(self) -> None:
        """Write buffered data to the engine's files, durably."""
    def maintain(self) -> None:
        """Run background work (flushes, compactions) until none is due."""
    def approximate_len(self) -> int | None:
        """The number of keys as the engine estimates it; None if it cannot."""
    def stats(self) -> dict[str, Any]:
        """Counters and sizes."""

@final
class Snapshot(_Reads):
    """A read-only mapping: the table as of its creation. A context manager that closes itself."""

    @property
    def sequence(self) -> int:
        """Up to which it shows writes: a change feed resumes after it."""
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, exception_type: object, *_rest: object) -> Literal[False]: ...

@final
class Transaction(_Reads):
    """Reads as of its beginning with its own writes, and writes that are applied together.

    As a context manager it commits, or discards its writes after an exception. The commit raises
    ConflictError if what was read has changed; nothing was applied then.
    """

    def __setitem__(self, key: _Bytes, value: _Bytes, /) -> None: ...
    def __delitem__(self, key: _Bytes, /) -> None: ...
    def put(
        self,
        key: _Bytes,
        value: _Bytes,
        *,
        ttl: float | None = None,
        expires_at: float | None = None,
    ) -> None: ...
    def delete(self, key: _Bytes) -> None: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, exception_type: object, *_rest: object) -> Literal[False]: ...

@final
class DbTransaction:
    """A transaction over several tables: tx[table] is the transaction on one of them.

    It commits as Transaction does, all tables or none; tx[table] is not committed by itself.
    """

    def __getitem__(self, table: Table, /) -> Transaction: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, exception_type: object, *_rest: object) -> Literal[False]: ...

@final
class DbReader:
    """A store as of the last catch-up: a read-only mapping from names to tables.

    It keeps the files that it shows open, also those that the writer has removed. A context manager that
    closes itself.
    """

    def __getitem__(self, name: str, /) -> Table:
        """Open a table as of the last catch-up; it does not change, and writes raise RefusedError."""
    def __contains__(self, name: str, /) -> bool: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str]: ...
    def catch_up(self) -> bool:
        """Read what the writer has written since, and return whether there is anything.

        Open tables stay as they are: get them again.
        """
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, exception_type: object, *_rest: object) -> Literal[False]: ...

@final
class Event:
    """Something that has happened in a store."""

    @property
    def kind(self) -> str:
        """flush_begun, flush_completed, compaction_begun, compaction_completed, stall_begun, stall_ended,
        background_error, read_only, corruption, dropped (the listener was too slow) or other."""
    @property
    def table(self) -> str:
        """The name of the table; empty if it is no event of a table."""
    @property
    def message(self) -> str:
        """One line for a log, with the names of files."""
    @property
    def at(self) -> float:
        """In seconds since 1970."""
    @property
    def job(self) -> int | None:
        """The number of a flush or compaction, which both of its events have."""
    @property
    def failed(self) -> bool:
        """Whether a completed job has failed."""
    @property
    def duration(self) -> float:
        """How long a completed job or a stall took, in seconds."""
    @property
    def input_bytes(self) -> int:
        """Of the files that a job reads."""
    @property
    def output_bytes(self) -> int:
        """Of the files that a completed job has written."""

@type_check_only
class MergeOperator(Protocol):
    """Computes the value of a key from operands that Table.merge has written, the oldest first.

    It depends on its arguments alone: it is called in reads, flushes and compactions, on any thread. The
    name is recorded in the table, and stands for the format of the operands. It may also have
    partial_merge(key, operands): one operand with the effect of all, or None.
    """

    @property
    def name(self) -> str: ...
    def merge(self, key: bytes, value: bytes | None, operands: list[bytes], /) -> _Bytes:
        """value is the one before the operands. An exception makes reads of the key fail."""

@final
class Batch:
    """Writes that are applied together by write(), or at the end of a `with` block without exception.

    One thread at a time may use it.
    """

    def __setitem__(self, key: _Bytes, value: _Bytes, /) -> None: ...
    def __delitem__(self, key: _Bytes, /) -> None: ...
    def __len__(self) -> int: ...
    def put(
        self,
        key: _Bytes,
        value: _Bytes,
        *,
        ttl: float | None = None,
        expires_at: float | None = None,
    ) -> None: ...
    def delete(self, key: _Bytes) -> None: ...
    def delete_range(
        self,
        start: _Bytes | None = None,
        end: _Bytes | None = None,
        *,
        prefix: _Bytes | None = None,
    ) -> None: ...
    def merge(self, key: _Bytes, operand: _Bytes) -> None: ...
    def append(self, change: Change) -> None:
        """Add the operations of a change, e.g. to apply them to another table."""
    def clear(self) -> None: ...
    def write(self) -> None: ...
    def try_write(self) -> bool:
        """Write buffered, unless that would have to wait: then False, and nothing is written.

        For event loops. lsm, trie and silt.
        """
    def __enter__(self) -> Self: ...
    def __exit__(self, exception_type: object, *_rest: object) -> Literal[False]: ...

@final
class Entries(Generic[_T]):
    """An iterator over a table, as of its creation."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> _T: ...

@final
class Changes:
    """The committed changes of a table. An iterator over those that are there now."""

    @property
    def position(self) -> int:
        """The sequence number of the last change that was returned, or the one to resume after."""
    def next(self, timeout: float = 0.0) -> Change | None:
        """The next change, waiting up to timeout seconds for one; None if none came."""
    def close(self) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Change: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, exception_type: object, *_rest: object) -> Literal[False]: ...

@final
class Change:
    """One committed change of a table."""

    @property
    def kind(self) -> str:
        """write; cleared: every key was removed; ingested: read the table."""
    @property
    def sequence(self) -> int:
        """Of its last operation: a consumer that has applied the change resumes after it."""
    @property
    def part(self) -> int | None:
        """The number of the batch over several tables of which this is a part."""
    @property
    def operations(self) -> list[tuple[str, bytes, bytes | None, float | None]]:
        """Kind, key, value and expiry of each: put, delete, delete_range (start, end), merge."""

@final
class SortedFile:
    """A file of entries in the order of keys, for Table.ingest.

    As a context manager it finishes the file, or removes it after an exception.
    """

    def __new__(cls, path: _Path, options: Mapping[str, str] | None = None) -> Self: ...
    def put(
        self,
        key: _Bytes,
        value: _Bytes,
        *,
        ttl: float | None = None,
        expires_at: float | None = None,
    ) -> None: ...
    def delete(self, key: _Bytes) -> None: ...
    def finish(self) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, exception_type: object, *_rest: object) -> Literal[False]: ...

@final
class MoveProgress:
    """How far a move is."""

    @property
    def rows(self) -> int:
        """Rows copied since the copy last began."""
    @property
    def changes(self) -> int:
        """Rows copied again because they were written meanwhile."""
    @property
    def restarts(self) -> int:
        """How often the copy began again, after a removal of ranges or of all keys."""

@final
class TableMove:
    """A table on its way to another engine: `with db.begin_move("t", "silt") as moving`.

    As a context manager it cancels the move, unless it is finished: the table stays as it is.
    """

    def copy(self, on_progress: Callable[[MoveProgress], object] | None = None) -> None:
        """Copy all rows, then those that were written meanwhile, until few are left.

        Readers and writers go on. on_progress is called after each batch of rows. An exception of
        it ends the copy, which continues if this is called again.

        Raises RefusedError for a value that the engine does not take, or if it has no room.
        """
    def finish(self, on_progress: Callable[[MoveProgress], object] | None = None) -> Table:
        """Copy what is left, and put the copy in the place of the table, durably.

        Writers wait for the last few rows. The other objects of the table raise ClosedError from
        then on. The move is over in any case; after an error the table is as it was, or it has
        moved if only its old files could not be removed.
        """
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, exception_type: object, *_rest: object) -> Literal[False]: ...

class Error(Exception):
    """An error of the store."""

    retryable: bool

class CorruptionError(Error):
    filename: str
    offset: int

class IoError(Error):
    filename: str
    errno: int | None
    disk_full: bool

class TooLargeError(Error): ...
class UnsupportedError(Error): ...
class BelowWatermarkError(Error): ...
class OptionsError(Error): ...
class RefusedError(Error): ...

class LockedError(Error):
    holder: int | None

class ReadOnlyError(Error): ...

class ConflictError(Error):
    key: bytes

class ExpiredError(Error): ...
class ClosedError(Error): ...
class InvalidError(Error): ...
class ChangesUnavailableError(Error): ...
