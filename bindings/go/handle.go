package siltstone

// #include "bridge.h"
import "C"

import (
	"maps"
	"runtime"
	"slices"
	"sync"
	"unsafe"
)

// A handle is a pointer to an object of the C library, and the lock that keeps the object alive
// while a call uses it: calls of a shared object hold the lock for reading, calls of others exclude
// one another, and closing holds it for writing. The garbage collector closes a handle that nobody
// can reach. No call acquires a second handle, except that a write acquires its batches, last.
type handle struct {
	mu       sync.RWMutex
	pointer  unsafe.Pointer // nil: closed
	free     func(unsafe.Pointer)
	name     string
	isShared bool
}

// newHandle owns an object. isShared says whether several threads may use the object at the same
// time.
func newHandle(pointer unsafe.Pointer, name string, isShared bool, free func(unsafe.Pointer)) *handle {
	h := &handle{pointer: pointer, free: free, name: name, isShared: isShared}
	runtime.SetFinalizer(h, (*handle).close)
	return h
}

// acquire begins a use of the object, which release ends. It fails if the handle is closed.
func (h *handle) acquire() error {
	if h.isShared {
		h.mu.RLock()
	} else {
		h.mu.Lock()
	}
	if h.pointer != nil {
		return nil
	}
	h.release()
	return &Error{Code: ErrClosed, Message: "the " + h.name + " is closed"}
}

func (h *handle) release() {
	if h.isShared {
		h.mu.RUnlock()
	} else {
		h.mu.Unlock()
	}
}

// close frees the object after the calls in progress. Closing again does nothing.
func (h *handle) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pointer != nil {
		h.free(h.pointer)
		h.pointer = nil
		runtime.SetFinalizer(h, nil)
	}
}

// bytes returns the address of a key or value; nil for a nil slice.
func bytes(b []byte) *C.char {
	return (*C.char)(unsafe.Pointer(unsafe.SliceData(b)))
}

// length returns the length of a key or value.
func length(b []byte) C.size_t {
	return C.size_t(len(b))
}

// clone copies memory of the C library. The copy is not nil.
func clone(data *C.char, len C.size_t) []byte {
	return append(make([]byte, 0, len), unsafe.Slice((*byte)(unsafe.Pointer(data)), len)...)
}

// take returns the text of a result, and frees it.
func take(r C.result) ([]byte, error) {
	if err := check(r.error); err != nil {
		return nil, err
	}
	if r.data == nil {
		return nil, nil
	}
	defer C.siltstone_free(unsafe.Pointer(r.data))
	return clone(r.data, r.len), nil
}

// takeText returns the NUL-terminated text of a result, and frees it.
func takeText(r C.result) ([]byte, error) {
	if r.data != nil {
		r.len = C.size_t(C.strlen(r.data))
	}
	return take(r)
}

// optionList returns options in the form key=value, sorted.
func optionList(options map[string]string) []string {
	list := make([]string, 0, len(options))
	for _, key := range slices.Sorted(maps.Keys(options)) {
		list = append(list, key+"="+options[key])
	}
	return list
}

// textList returns texts one after the other, each with a NUL.
func textList(list []string, name string) ([]byte, error) {
	text := []byte{}
	for _, item := range list {
		if err := checkText(item, name); err != nil {
			return nil, err
		}
		text = append(append(text, item...), 0)
	}
	return text, nil
}
