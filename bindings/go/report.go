package siltstone

// #include "bridge.h"
import "C"

import "encoding/json"

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
// Errors: [ErrRefused] if the directory is not a store, or is an encrypted one; [ErrLocked];
// [ErrIO].
func Verify(path string) (*VerifyReport, error) { return VerifyWith(path, nil) }

// VerifyWith is Verify for a store that is opened with options: with its keys, if it is encrypted.
func VerifyWith(path string, options *Options) (*VerifyReport, error) {
	var report *VerifyReport
	err := withStore(path, options, func(path *C.char, options *C.siltstone_options) (err error) {
		report, err = verifyReport(C.verify(path, options))
		return err
	})
	return report, err
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
// Errors: [ErrRefused] if the directory is not a store, or is an encrypted one; [ErrLocked];
// [ErrIO].
func Repair(path string) (*RepairReport, error) { return RepairWith(path, nil) }

// RepairWith is Repair for a store that is opened with options: with its keys, if it is encrypted.
func RepairWith(path string, options *Options) (*RepairReport, error) {
	repaired := &RepairReport{}
	err := withStore(path, options, func(path *C.char, options *C.siltstone_options) error {
		r := C.repair(path, options)
		report, err := takeText(r)
		if err != nil {
			return err
		}
		repaired.IsLossless = bool(r.flag)
		return json.Unmarshal(report, repaired)
	})
	if err != nil {
		return nil, err
	}
	return repaired, nil
}

// A RekeyReport says what [Rekey] has done.
type RekeyReport struct {
	// Files is the number of files of the store.
	Files uint64 `json:"files"`
	// Rewrapped is the number of those that had an earlier master key.
	Rewrapped uint64 `json:"rewrapped"`
	// Damaged are files whose header is damaged: they were not changed.
	Damaged []Damage `json:"damaged"`
}

// Rekey changes the master key of the encrypted store in the directory path, which no process has
// open, to the first one of options.Keys; the others are earlier ones. Contents are not encrypted
// again: each file has a key of its own, which the master key encrypts. Earlier master keys are not
// needed afterwards. The call may be repeated after an interruption.
//
// Errors: [ErrRefused] if the store is not encrypted, or with a key that is not among those of the
// options; [ErrInvalid] without options; [ErrLocked]; [ErrIO].
func Rekey(path string, options *Options) (*RekeyReport, error) {
	report := &RekeyReport{}
	err := withStore(path, options, func(path *C.char, options *C.siltstone_options) error {
		text, err := takeText(C.rekey(path, options))
		if err != nil {
			return err
		}
		return json.Unmarshal(text, report)
	})
	if err != nil {
		return nil, err
	}
	return report, nil
}
