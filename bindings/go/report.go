package siltstone

// #include "bridge.h"
import "C"

import (
	"encoding/json"
	"unsafe"
)

// A VerifyReport says what was checked and which damage was found.
type VerifyReport struct {
	// IsIntact is whether no damage was found.
	IsIntact bool `json:"-"`
	// Catalogue is the damage to the list of tables.
	Catalogue []Damage `json:"catalogue"`
	// Unlisted are directories of tables that the list of tables does not have.
	Unlisted []string `json:"unlisted"`
	// Tables are the reports by the name of the table.
	Tables map[string]TableReport `json:"tables"`
}

// A TableReport is the part of one table in a [VerifyReport].
type TableReport struct {
	Files   uint64   `json:"files"`
	Bytes   uint64   `json:"bytes"`
	Entries uint64   `json:"entries"`
	Damage  []Damage `json:"damage"`
}

// Damage is a place at which stored bytes are not what was written.
type Damage struct {
	File   string `json:"file"`
	Offset uint64 `json:"offset"`
	Reason string `json:"reason"`
}

// A RepairReport says what a repair has done and lost.
type RepairReport struct {
	// IsLossless is whether nothing was lost.
	IsLossless bool `json:"-"`
	// Catalogue says what was done to the list of tables, a line each.
	Catalogue []string `json:"catalogue"`
	// Tables are the reports by the name of the table.
	Tables map[string]TableRepair `json:"tables"`
}

// A TableRepair is the part of one table in a [RepairReport].
type TableRepair struct {
	// Lines say what was done.
	Lines []string `json:"lines"`
	// Losses are the bytes that could not be read, as JSON objects of the form
	// {"file":F,"bytes":{"start":0,"end":9},"effect":"entries"}.
	Losses []json.RawMessage `json:"losses"`
}

// Verify reads and checks every byte of the open store. Damage is in the report, and is not an
// error.
//
// Errors: [ErrIO]: a file could not be read.
func (db *DB) Verify() (*VerifyReport, error) {
	if err := db.acquire(); err != nil {
		return nil, err
	}
	defer db.release()
	return verifyReport(C.db_verify(db.c()))
}

// Verify reads and checks every byte of the store in the directory path, which no process has open.
// It changes nothing. Damage is in the report, also that of the list of tables, and is not an
// error.
//
// Errors: [ErrRefused] if the directory is not a store; [ErrLocked]; [ErrIO].
func Verify(path string) (*VerifyReport, error) {
	if err := checkText(path, "path"); err != nil {
		return nil, err
	}
	text := C.CString(path)
	defer C.free(unsafe.Pointer(text))
	return verifyReport(C.verify(text))
}

func verifyReport(r C.result) (*VerifyReport, error) {
	text, err := takeText(r)
	if err != nil {
		return nil, err
	}
	report := &VerifyReport{IsIntact: bool(r.flag)}
	return report, json.Unmarshal(text, report)
}

// Repair repairs the store in the directory path, which no process has open, as far as possible.
// Damaged files are kept as *.damaged.
//
// Errors: [ErrRefused] if the directory is not a store; [ErrLocked]; [ErrIO].
func Repair(path string) (*RepairReport, error) {
	if err := checkText(path, "path"); err != nil {
		return nil, err
	}
	text := C.CString(path)
	defer C.free(unsafe.Pointer(text))
	r := C.repair(text)
	report, err := takeText(r)
	if err != nil {
		return nil, err
	}
	repaired := &RepairReport{IsLossless: bool(r.flag)}
	return repaired, json.Unmarshal(report, repaired)
}
