//! Maintenance: verification, repair, a change of the master key.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use store::{DbOptions, Error, maintenance};

use crate::db::SiltstoneDb;
use crate::error::{SiltstoneError, guard, required};
use crate::memory::{Output, text};
use crate::options::SiltstoneOptions;

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
    guard(|| report_verify(is_intact, json, || required(db, "db")?.0.verify()))
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
    guard(|| {
        report_verify(is_intact, json, || {
            // SAFETY: the caller passes a NUL-terminated string.
            let path = unsafe { text(path, "path") }?;
            maintenance::verify_with(path, &db_options(options))
        })
    })
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
    guard(|| {
        let is_lossless = required(is_lossless, "is_lossless")?;
        is_lossless.write(false);
        let mut json = json.map(|json| Output::text(Some(json), "json")).transpose()?;
        // SAFETY: the caller passes a NUL-terminated string.
        let path = unsafe { text(path, "path") }?;
        let mut report = maintenance::StoreRepairReport::default();
        maintenance::repair_with(path, None, &db_options(options), &mut report)?;
        json.as_mut().map_or(Ok(()), |json| json.set_json(&report))?;
        is_lossless.write(report.is_lossless());
        Ok(())
    })
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

fn db_options(options: Option<&SiltstoneOptions>) -> DbOptions {
    options.map(SiltstoneOptions::to_db_options).unwrap_or_default()
}

fn report_verify(
    is_intact: Option<&mut MaybeUninit<bool>>,
    json: Option<&mut MaybeUninit<*mut c_char>>,
    verify: impl FnOnce() -> Result<maintenance::StoreVerifyReport, Error>,
) -> Result<(), Error> {
    let is_intact = required(is_intact, "is_intact")?;
    is_intact.write(false);
    let mut json = json.map(|json| Output::text(Some(json), "json")).transpose()?;
    let report = verify()?;
    json.as_mut().map_or(Ok(()), |json| json.set_json(&report))?;
    is_intact.write(report.is_intact());
    Ok(())
}
