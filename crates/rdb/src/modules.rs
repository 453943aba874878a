//! Names of the types of modules, and what modules have put into a file.
//!
//! ```text
//!   id:u64      9 characters of 6 bits, the first one in the highest bits, and 10 bits of version
//!   fields      (kind:length  field)*  0        kind 1, 2: length   3: f32   4: f64   5: string
//! ```

use std::io::Read;

use crate::error::Result;
use crate::source::Source;

const CHARACTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const NAME_BYTES: u32 = 9;
const VERSION_BITS: u32 = 10;

/// Name of a module type.
pub(crate) fn name(id: u64) -> String {
    let character = |at: u32| {
        let shift = VERSION_BITS + 6 * (NAME_BYTES - 1 - at);
        char::from(CHARACTERS[(id >> shift & 0x3f) as usize])
    };
    (0..NAME_BYTES).map(character).collect()
}

/// Skips the fields of a module.
pub(crate) fn skip_fields<R: Read>(source: &mut Source<R>) -> Result<()> {
    loop {
        match source.length()? {
            0 => return Ok(()),
            1 | 2 => _ = source.length()?,
            3 => _ = source.array::<4>()?,
            4 => _ = source.array::<8>()?,
            5 => _ = source.string()?,
            _ => return Err(source.malformed("an unknown field of a module")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_decoded() {
        let mut id = 0;
        for byte in b"ReJSON-RL" {
            let code = CHARACTERS.iter().position(|c| c == byte).unwrap_or_default();
            id = id << 6 | code as u64;
        }
        assert_eq!(name(id << VERSION_BITS | 3), "ReJSON-RL");
    }
}
