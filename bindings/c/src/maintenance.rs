//! Maintenance: verification, repair, a change of the master key.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use store::Error;
use store::maintenance::{self, StoreRepairReport, StoreVerifyReport};

use crate::db::SiltstoneDb;
use crate::error::{SiltstoneError, guard, required};
use crate::memory::{Output, text};
use crate::options::{SiltstoneOptions, db_options};

/// Reads and checks every byte of an open store. *is_intact is set to whether no damage was found,
/// and *json, which may be NULL, gets the report: {"catalogue":[],"unlisted":[],"tables":{NAME:
/// {"files":1,"bytes":2,"entries":3,"damage":[{"file":F,"offset":0,"reason":R}]}}}. Free *json with
/// siltstone_free(). Damage is not an error.
///
/// Errors: IO: a file could not be read.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_verify_open(
    db: Option<&SiltstoneDb>,
    is_intact: Option<&mut MaybeUninit<bool>>,
    json: Option<&mut MaybeUninit<*mut c_char>>,
) -> Option<Box<SiltstoneError>> {
    let verify = || required(db, "db")?.0.verify();
    guard(|| report((is_intact, "is_intact"), json, verify, StoreVerifyReport::is_intact))
}

/// Reads and checks every byte of the store in the directory `path`, which no process has open.
/// Changes nothing. Damage to the list of tables is in the report, too. Otherwise as
/// siltstone_verify_open().
///
/// Errors: REFUSED if the directory is not a store, or is an encrypted one; LOCKED; IO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_verify(
    path: *const c_char,
    is_intact: Option<&mut MaybeUninit<bool>>,
    json: Option<&mut MaybeUninit<*mut c_char>>,
) -> Option<Box<SiltstoneError>> {
    // SAFETY: the caller passes a NUL-terminated string.
    unsafe { siltstone_verify_with(path, None, is_intact, json) }
}

/// As siltstone_verify(), for a store that is opened with `options`: with its keys, if it is
/// encrypted. NULL is for the default options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_verify_with(
    path: *const c_char,
    options: Option<&SiltstoneOptions>,
    is_intact: Option<&mut MaybeUninit<bool>>,
    json: Option<&mut MaybeUninit<*mut c_char>>,
) -> Option<Box<SiltstoneError>> {
    let verify = || {
        // SAFETY: the caller passes a NUL-terminated string.
        let path = unsafe { text(path, "path") }?;
        maintenance::verify_with(path, &db_options(options))
    };
    guard(|| report((is_intact, "is_intact"), json, verify, StoreVerifyReport::is_intact))
}

/// Repairs the store in the directory `path`, which no process has open, as far as possible.
/// Damaged files are kept as *.damaged. *is_lossless is set to whether nothing was lost, and *json,
/// which may be NULL, gets the report: {"catalogue":[LINE],"tables":{NAME:{"lines":[LINE],
/// "losses":[{"file":F,"bytes":{"start":0,"end":9},"effect":"entries"}]}}}. Free *json with
/// siltstone_free().
///
/// Errors: REFUSED if the directory is not a store, or is an encrypted one; LOCKED; IO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_repair(
    path: *const c_char,
    is_lossless: Option<&mut MaybeUninit<bool>>,
    json: Option<&mut MaybeUninit<*mut c_char>>,
) -> Option<Box<SiltstoneError>> {
    // SAFETY: the caller passes a NUL-terminated string.
    unsafe { siltstone_repair_with(path, None, is_lossless, json) }
}

/// As siltstone_repair(), for a store that is opened with `options`: with its keys, if it is
/// encrypted. NULL is for the default options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_repair_with(
    path: *const c_char,
    options: Option<&SiltstoneOptions>,
    is_lossless: Option<&mut MaybeUninit<bool>>,
    json: Option<&mut MaybeUninit<*mut c_char>>,
) -> Option<Box<SiltstoneError>> {
    let repair = || {
        // SAFETY: the caller passes a NUL-terminated string.
        let path = unsafe { text(path, "path") }?;
        let mut report = StoreRepairReport::default();
        maintenance::repair_with(path, None, &db_options(options), &mut report)?;
        Ok(report)
    };
    guard(|| report((is_lossless, "is_lossless"), json, repair, StoreRepairReport::is_lossless))
}

/// Changes the master key of the encrypted store in the directory `path`, which no process has
/// open. The first key of `options` is the new one, and the others are earlier ones (see
/// siltstone_options_add_key()). Contents are not encrypted again: each file has a key of its own,
/// which the master key encrypts. Earlier master keys are not needed afterwards. The call may be
/// repeated after an interruption. *json, which may be NULL, gets the report: {"files":9,
/// "rewrapped":9,"damaged":[{"file":F,"offset":0,"reason":R}]}. Free *json with siltstone_free().
///
/// Errors: REFUSED if the store is not encrypted, or with a key that is not among those of
/// `options`; LOCKED; IO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_rekey(
    path: *const c_char,
    options: Option<&SiltstoneOptions>,
    json: Option<&mut MaybeUninit<*mut c_char>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let mut json = json.map(|json| Output::text(Some(json), "json")).transpose()?;
        let keys = required(options, "options")?.keys();
        // SAFETY: the caller passes a NUL-terminated string.
        let path = unsafe { text(path, "path") }?;
        let report = maintenance::rewrap(path, &keys)?;
        json.as_mut().map_or(Ok(()), |json| json.set_json(&report))
    })
}

/// Makes a report, and returns it with whether all is well by it.
fn report<R: serde::Serialize>(
    (is_well, name): (Option<&mut MaybeUninit<bool>>, &str),
    json: Option<&mut MaybeUninit<*mut c_char>>,
    make: impl FnOnce() -> Result<R, Error>,
    judge: impl FnOnce(&R) -> bool,
) -> Result<(), Error> {
    let is_well = required(is_well, name)?;
    is_well.write(false);
    let mut json = json.map(|json| Output::text(Some(json), "json")).transpose()?;
    let report = make()?;
    json.as_mut().map_or(Ok(()), |json| json.set_json(&report))?;
    is_well.write(judge(&report));
    Ok(())
}
