package siltstone

// #include "bridge.h"
import "C"

import (
	"runtime/cgo"
	"time"
)

// An EventKind is a kind of event. Later versions may add kinds.
type EventKind int32

const (
	// EventOther is a kind that this version of the library has no number for.
	EventOther EventKind = C.SILTSTONE_EVENT_KIND_OTHER
	// EventFlushBegun: a memtable is being written to files.
	EventFlushBegun EventKind = C.SILTSTONE_EVENT_KIND_FLUSH_BEGUN
	// EventFlushCompleted: a flush has ended; see Event.IsFailed.
	EventFlushCompleted EventKind = C.SILTSTONE_EVENT_KIND_FLUSH_COMPLETED
	// EventCompactionBegun: files are being compacted.
	EventCompactionBegun EventKind = C.SILTSTONE_EVENT_KIND_COMPACTION_BEGUN
	// EventCompactionCompleted: a compaction has ended; see Event.IsFailed.
	EventCompactionCompleted EventKind = C.SILTSTONE_EVENT_KIND_COMPACTION_COMPLETED
	// EventStallBegun: writers are delayed or wait from now on.
	EventStallBegun EventKind = C.SILTSTONE_EVENT_KIND_STALL_BEGUN
	// EventStallEnded: writers do not wait for this cause any more.
	EventStallEnded EventKind = C.SILTSTONE_EVENT_KIND_STALL_ENDED
	// EventBackgroundError: a background job has failed. It is retried, unless EventReadOnly follows.
	EventBackgroundError EventKind = C.SILTSTONE_EVENT_KIND_BACKGROUND_ERROR
	// EventReadOnly: the table rejects writes until the store is reopened.
	EventReadOnly EventKind = C.SILTSTONE_EVENT_KIND_READ_ONLY
	// EventCorruption: damage was found. The same damage is reported each time that it is found.
	EventCorruption EventKind = C.SILTSTONE_EVENT_KIND_CORRUPTION
	// EventDropped: the listener was too slow, and events were dropped here.
	EventDropped EventKind = C.SILTSTONE_EVENT_KIND_DROPPED
)

// An Event is something that has happened in a store.
type Event struct {
	Kind EventKind
	// IsFailed says whether a completed job has failed.
	IsFailed bool
	// Table is the name of the table; empty if it is no event of a table.
	Table string
	// Message is one line for a log, with the names of files, without the time.
	Message string
	At      time.Time
	// Job is the number of a flush or compaction: both of its events have it. 0 for other events.
	Job uint64
	// Duration of a completed job or of a stall.
	Duration time.Duration
	// InputBytes are the bytes of the files that a job reads.
	InputBytes uint64
	// OutputBytes are the bytes of the files that a completed job has written.
	OutputBytes uint64
}

//export siltstoneGoEvent
func siltstoneGoEvent(listener C.uintptr_t, event *C.siltstone_event) {
	cgo.Handle(listener).Value().(func(Event))(Event{
		Kind:        EventKind(event.kind),
		IsFailed:    bool(event.is_failed),
		Table:       C.GoString(event.table),
		Message:     C.GoString(event.message),
		At:          time.UnixMilli(int64(event.at)),
		Job:         uint64(event.job),
		Duration:    time.Duration(event.duration_us) * time.Microsecond,
		InputBytes:  uint64(event.input_bytes),
		OutputBytes: uint64(event.output_bytes),
	})
}
