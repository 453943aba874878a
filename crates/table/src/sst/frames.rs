//! Reads frames of an SSTable: meta blocks, and the dictionary.
//!
//! Invariant: what is returned matched its checksum.

use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::File;

use super::footer::MetaBlock;
use crate::FileSum;
use crate::block::codec::FrameError;
use crate::block::dictionary::Dictionary;
use crate::block::frame::open_frame;

/// Reads the contents of a meta block.
pub(super) fn read_meta(
    file: &dyn File,
    name: &str,
    sum: FileSum,
    place: &MetaBlock,
    purpose: Purpose,
) -> Result<Vec<u8>> {
    let len = place.bytes as usize;
    let (mut contents, len) = read_frame(file, name, sum, place.offset, len, Vec::new(), purpose)?;
    contents.truncate(len);
    Ok(contents)
}

/// Reads the dictionary, and says so if it is damaged: no block that needs it can be read.
pub(super) fn read_dictionary(
    file: &dyn File,
    name: &str,
    sum: FileSum,
    place: &MetaBlock,
) -> Result<Dictionary> {
    let bad = |reason: &str| {
        let reason = format!("the dictionary of the data blocks is damaged: {reason}");
        Error::corruption(name, place.offset, reason)
    };
    match read_meta(file, name, sum, place, Purpose::Recovery) {
        Ok(contents) => Dictionary::decode(&contents).map_err(|error| match error {
            FrameError::Damaged(reason) => bad(reason),
            missing => missing.at(name, place.offset),
        }),
        Err(Error::Corruption { reason, .. }) => Err(bad(&reason)),
        Err(error) => Err(error),
    }
}

/// Reads the frame at `at` into `memory` and returns its contents and their length.
pub(super) fn read_frame(
    file: &dyn File,
    name: &str,
    sum: FileSum,
    at: u64,
    len: usize,
    mut memory: Vec<u8>,
    purpose: Purpose,
) -> Result<(Vec<u8>, usize)> {
    memory.clear();
    memory.resize(len, 0);
    file.read_at(at, &mut memory, purpose)?;
    open_frame(memory, sum, at, None).map_err(|error| error.at(name, at))
}
