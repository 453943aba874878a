package siltstone

// #include "bridge.h"
import "C"

import (
	"runtime/cgo"
	"unsafe"
)

// A MergeOperator computes the value of a key from operands that [Table.Merge] has written. It must
// depend on its arguments alone, and be safe for use by several goroutines: it is called in reads,
// flushes and compactions, at any time. It must not use the store, panic or keep its arguments.
type MergeOperator interface {
	// Name is recorded in the table, and stands for the format of the operands. Names with the
	// prefix "siltstone." are reserved.
	Name() string
	// Merge returns the value of a key after operands, at least one, the oldest first. value is the
	// one before, or nil if the key was missing. After an error reads of the key fail with it.
	Merge(key, value []byte, operands [][]byte) ([]byte, error)
}

// A PartialMerger is a [MergeOperator] that can also merge operands without a value.
type PartialMerger interface {
	// PartialMerge returns one operand with the effect of all of operands, at least two, the oldest
	// first; false if there is none.
	PartialMerge(key []byte, operands [][]byte) ([]byte, bool)
}

// view returns bytes of the C library, which are valid during a callback.
func view(data *C.char, len C.size_t) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(data)), len)
}

//export siltstoneGoMerge
func siltstoneGoMerge(operator C.uintptr_t, call *C.merge_call) C.bool {
	key := view(call.key, call.key_len)
	operands := make([][]byte, call.operand_count)
	data := unsafe.Slice(call.operands, call.operand_count)
	lengths := unsafe.Slice(call.operand_lens, call.operand_count)
	for i := range operands {
		operands[i] = view(data[i], lengths[i])
	}
	object := cgo.Handle(operator).Value().(MergeOperator)
	var merged []byte
	var isMerged bool
	if call.is_partial {
		merged, isMerged = object.(PartialMerger).PartialMerge(key, operands)
	} else {
		merged, isMerged = fullMerge(object, key, call, operands)
	}
	// It fails for NULL arguments only.
	C.siltstone_error_free(C.siltstone_merge_output_append(call.output, bytes(merged), length(merged)))
	return C.bool(isMerged)
}

// fullMerge returns the value, or the reason why there is none.
func fullMerge(operator MergeOperator, key []byte, call *C.merge_call, operands [][]byte) ([]byte, bool) {
	var value []byte
	if call.value != nil {
		value = view(call.value, call.value_len)
	}
	merged, err := operator.Merge(key, value, operands)
	if err != nil {
		return []byte(err.Error()), false
	}
	return merged, true
}

//export siltstoneGoForget
func siltstoneGoForget(handle C.uintptr_t) {
	cgo.Handle(handle).Delete()
}
