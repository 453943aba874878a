//! LZ4, with the feature `lz4`. Without it both calls say that it is missing.

use super::codec::Codec;

/// Appends the compressed form of `contents` to `out`.
#[cfg(feature = "lz4")]
pub(super) fn compress(contents: &[u8], out: &mut Vec<u8>) -> std::io::Result<()> {
    let at = out.len();
    out.resize(at + lz4_flex::block::get_maximum_output_size(contents.len()), 0);
    let len =
        lz4_flex::block::compress_into(contents, &mut out[at..]).map_err(std::io::Error::other)?;
    out.truncate(at + len);
    Ok(())
}

/// Decompresses `len` bytes into the empty `contents`, and returns their number; `None` if that
/// fails.
#[cfg(feature = "lz4")]
pub(super) fn decompress(
    packed: &[u8],
    len: usize,
    contents: &mut Vec<u8>,
) -> Result<Option<usize>, Codec> {
    contents.resize(len, 0);
    Ok(lz4_flex::block::decompress_into(packed, contents).ok())
}

#[cfg(not(feature = "lz4"))]
pub(super) fn compress(_contents: &[u8], _out: &mut Vec<u8>) -> std::io::Result<()> {
    Err(Codec::Lz4.missing())
}

#[cfg(not(feature = "lz4"))]
pub(super) fn decompress(
    _packed: &[u8],
    _len: usize,
    _contents: &mut Vec<u8>,
) -> Result<Option<usize>, Codec> {
    Err(Codec::Lz4)
}
