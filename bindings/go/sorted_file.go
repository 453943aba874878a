package siltstone

// #include "bridge.h"
import "C"

import (
	"encoding/json"
	"time"
	"unsafe"
)

// A SortedFile is a file of sorted entries that is being written, for [Table.Ingest].
type SortedFile struct{ *handle }

// CreateSortedFile creates the file path, which must not exist. The options are those of an lsm
// table, of which block size, compression and filters matter; they may be nil.
//
// Errors: [ErrInvalidOptions]; [ErrIO].
func CreateSortedFile(path string, options map[string]string) (*SortedFile, error) {
	if err := checkText(path, "path"); err != nil {
		return nil, err
	}
	list := optionList(options)
	text, err := textList(list, "options")
	if err != nil {
		return nil, err
	}
	cPath := C.CString(path)
	defer C.free(unsafe.Pointer(cPath))
	created := C.sorted_file_create(cPath, C.size_t(len(list)), bytes(text))
	if err := check(created.error); err != nil {
		return nil, err
	}
	return &SortedFile{newHandle(created.handle, "sorted file", false, func(file unsafe.Pointer) {
		C.siltstone_sorted_file_free((*C.siltstone_sorted_file)(file))
	})}, nil
}

// use calls the C library while the file is open.
func (f *SortedFile) use(call func(*C.siltstone_sorted_file) *C.siltstone_error) error {
	if err := f.acquire(); err != nil {
		return err
	}
	defer f.release()
	return check(call((*C.siltstone_sorted_file)(f.pointer)))
}

// Put adds a key with its value. Each key must be above the one before.
//
// Errors: [ErrInvalid] for a key that is not: the file is unchanged. [ErrIO]: the file cannot be
// finished.
func (f *SortedFile) Put(key, value []byte) error {
	return f.use(func(file *C.siltstone_sorted_file) *C.siltstone_error {
		return C.siltstone_sorted_file_put(file, bytes(key), length(key), bytes(value), length(value))
	})
}

// PutUntil adds a key with a value that expires at a time.
func (f *SortedFile) PutUntil(key, value []byte, expiresAt time.Time) error {
	return f.use(func(file *C.siltstone_sorted_file) *C.siltstone_error {
		return C.siltstone_sorted_file_put_until(file, bytes(key), length(key),
			bytes(value), length(value), milliseconds(expiresAt))
	})
}

// Delete adds the removal of a key from the table that ingests the file.
func (f *SortedFile) Delete(key []byte) error {
	return f.use(func(file *C.siltstone_sorted_file) *C.siltstone_error {
		return C.siltstone_sorted_file_delete(file, bytes(key), length(key))
	})
}

// Finish completes the file, durably.
//
// Errors: [ErrInvalid] for a file without entries; [ErrIO]. The file is removed then.
func (f *SortedFile) Finish() error {
	return f.use(func(file *C.siltstone_sorted_file) *C.siltstone_error {
		return C.siltstone_sorted_file_finish(file)
	})
}

// Close frees the object. A file that is not finished is removed.
func (f *SortedFile) Close() { f.close() }

// IngestMode says what happens to the files of an ingestion.
type IngestMode int32

// The modes.
const (
	// IngestCopy copies them.
	IngestCopy IngestMode = C.SILTSTONE_INGEST_MODE_COPY
	// IngestLink links them into the table where the file system can, and copies them otherwise.
	// They must not be changed afterwards.
	IngestLink IngestMode = C.SILTSTONE_INGEST_MODE_LINK
	// IngestMove is IngestLink, and removes them from their place once the ingestion is durable.
	IngestMove IngestMode = C.SILTSTONE_INGEST_MODE_MOVE
)

// An IngestReport says what was ingested.
type IngestReport struct {
	// Sequence is the sequence number of all entries.
	Sequence uint64 `json:"sequence"`
	// Entries, deletions among them.
	Entries uint64 `json:"entries"`
	// Bytes is the length of the files.
	Bytes uint64 `json:"bytes"`
	// CopiedBytes were copied; the others were linked.
	CopiedBytes uint64 `json:"copied_bytes"`
	// Levels are the levels of the files.
	Levels []int `json:"levels"`
	// NotRemoved are files that were to be moved and could not be removed from their place.
	NotRemoved []string `json:"not_removed"`
}

// Ingest makes sorted files a part of the table, all at once and durably, without rewriting them.
// Their entries replace older ones of the same keys; the files must not overlap one another. lsm
// only.
//
// Errors: [ErrUnsupported]; [ErrInvalid] for files that overlap or are no complete sorted files;
// [ErrCorruption] in a file. Nothing has changed then.
func (t *Table) Ingest(paths []string, mode IngestMode) (IngestReport, error) {
	var report IngestReport
	err := t.withText(paths, "paths", func(count C.size_t, text *C.char) error {
		described, err := takeText(C.table_ingest(t.c(), count, text, C.int32_t(mode)))
		if err != nil {
			return err
		}
		return json.Unmarshal(described, &report)
	})
	return report, err
}
