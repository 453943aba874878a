//! Entries of listpacks, ziplists and intsets: integers or strings.

/// Reading of bytes within a string; the error is what is wrong with them.
pub(crate) type PackedResult<T> = Result<T, &'static str>;

/// An element of a packed collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry<'a> {
    Int(i64),
    Bytes(&'a [u8]),
}

impl Entry<'_> {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        match self {
            Entry::Int(number) => number.to_string().into_bytes(),
            Entry::Bytes(bytes) => bytes.to_vec(),
        }
    }

    pub(crate) fn to_int(self) -> PackedResult<i64> {
        match self {
            Entry::Int(number) => Ok(number),
            Entry::Bytes(_) => Err("a string in place of an integer"),
        }
    }
}

/// Parses a score in decimal.
pub(crate) fn parse_score(bytes: &[u8]) -> PackedResult<f64> {
    let score = std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<f64>().ok());
    score.filter(|score| !score.is_nan()).ok_or("a score is not a number")
}

/// Cuts bytes off the front.
pub(crate) fn cut<'a>(rest: &mut &'a [u8], len: usize) -> PackedResult<&'a [u8]> {
    let (bytes, after) = rest.split_at_checked(len).ok_or("an entry exceeds its collection")?;
    *rest = after;
    Ok(bytes)
}

/// Cuts an array off the front.
pub(crate) fn cut_array<const N: usize>(rest: &mut &[u8]) -> PackedResult<[u8; N]> {
    let (bytes, after) = rest.split_first_chunk().ok_or("an entry exceeds its collection")?;
    *rest = after;
    Ok(*bytes)
}

/// A signed integer of three bytes, little-endian.
pub(crate) fn i24(bytes: [u8; 3]) -> i64 {
    let [low, middle, high] = bytes;
    i64::from(i32::from_le_bytes([0, low, middle, high]) >> 8)
}
