//! Frames: the authenticated pieces of an encrypted file.
//!
//! ```text
// ANCHOR: frames
//! file  := header  block*                            the header is the first block
//! block := frame*  zeros                             4,096 bytes, the last may be shorter
//! frame := nonce:12  len:u16  ciphertext[len]  tag:16                 30 + len bytes
//!   nonce := offset:u48  generation:u48
// ANCHOR_END: frames
//! ```
//!
//! `offset` is where the plaintext is in the decrypted file. Each write appends one frame per block
//! that it touches; a frame is never changed. The tag covers the nonce, the length, the ciphertext
//! and the frame's position in the encrypted file, and the key is that of the file alone. So a
//! frame at another place or in another file is invalid.
//!
//! Invariant: no nonce is used twice with one key. Only the process that created a file appends to
//! it, at growing offsets; after a failed write and after a truncation it uses the next generation.

use chacha20poly1305::aead::inout::InOutBuf;
use chacha20poly1305::{AeadInOut, ChaCha20Poly1305, KeyInit, Nonce, Tag};
use siltstone_engine::{Error, Result};

use super::header::FileKey;

/// Bytes of a block.
pub(super) const BLOCK_BYTES: u64 = 4096;
/// Bytes of a frame besides its content.
pub(super) const OVERHEAD: usize = HEAD + TAG;
/// The most content of a frame.
pub(super) const MAX_CONTENT: usize = BLOCK_BYTES as usize - OVERHEAD;

const HEAD: usize = 14;
const TAG: usize = 16;
/// Offsets and generations are below this.
const LIMIT: u64 = 1 << 48;

/// A frame in a block, not necessarily authentic.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    /// Where it begins in the block.
    pub(super) at: usize,
    /// The offset of its content in the decrypted file.
    pub(super) offset: u64,
    pub(super) len: usize,
}

impl Frame {
    /// The frame that begins at `at` in `block`; `None` if none can.
    pub(super) fn parse(block: &[u8], at: usize) -> Option<Frame> {
        let head = block.get(at..)?.first_chunk::<HEAD>()?;
        let len = usize::from(u16::from_le_bytes([head[12], head[13]]));
        let offset =
            u64::from_le_bytes([head[0], head[1], head[2], head[3], head[4], head[5], 0, 0]);
        let frame = Frame { at, offset, len };
        (len > 0 && frame.end() <= block.len().min(BLOCK_BYTES as usize)).then_some(frame)
    }

    /// Where it ends in the block.
    pub(super) fn end(&self) -> usize {
        self.at + OVERHEAD + self.len
    }

    /// The end of its content in the decrypted file.
    pub(super) fn end_offset(&self) -> u64 {
        self.offset + self.len as u64
    }
}

/// The frames of a block in order, up to the first byte that begins none. They are not
/// authenticated.
pub(super) fn frames(block: &[u8]) -> impl Iterator<Item = Frame> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let frame = Frame::parse(block, at)?;
        at = frame.end();
        Some(frame)
    })
}

/// Encrypts and decrypts the frames of one file.
pub(super) struct FrameCipher(ChaCha20Poly1305);

impl FrameCipher {
    pub(super) fn new(key: &FileKey) -> Self {
        FrameCipher(ChaCha20Poly1305::new((&**key).into()))
    }

    /// Appends `content`, which begins at `offset` of the decrypted file, as frames to `out`, which
    /// will be written at `position` of the encrypted one. Calls `starts` for each frame at the
    /// beginning of a block.
    ///
    /// # Errors
    /// `TooLarge` past 2⁴⁸ bytes or generations.
    pub(super) fn seal(
        &self,
        mut content: &[u8],
        mut offset: u64,
        generation: u64,
        position: u64,
        out: &mut Vec<u8>,
        mut starts: impl FnMut(u64),
    ) -> Result<()> {
        let end = offset + content.len() as u64;
        if end >= LIMIT || generation >= LIMIT {
            let size = end.max(generation);
            return Err(Error::TooLarge { what: "encrypted file", size, limit: LIMIT });
        }
        let begin = out.len();
        while !content.is_empty() {
            let at = position + (out.len() - begin) as u64;
            let left = (BLOCK_BYTES - at % BLOCK_BYTES) as usize;
            if left <= OVERHEAD {
                out.resize(out.len() + left, 0);
                continue;
            }
            if left == BLOCK_BYTES as usize {
                starts(offset);
            }
            let (piece, rest) = content.split_at(content.len().min(left - OVERHEAD));
            let nonce = nonce(offset, generation);
            let len = (piece.len() as u16).to_le_bytes();
            out.extend_from_slice(&nonce);
            out.extend_from_slice(&len);
            let from = out.len();
            out.extend_from_slice(piece);
            let buffer = InOutBuf::from(&mut out[from..]);
            let tag = self.0.encrypt_inout_detached(&nonce, &associated_data(at, len), buffer);
            let tag =
                tag.map_err(|_| Error::Invalid("a frame is too long for the cipher".to_owned()))?;
            out.extend_from_slice(&tag);
            offset += piece.len() as u64;
            content = rest;
        }
        Ok(())
    }

    /// Decrypts a frame of the block at `position` into `out`, of the frame's length; `false` if it
    /// is not authentic.
    pub(super) fn open(&self, block: &[u8], frame: &Frame, position: u64, out: &mut [u8]) -> bool {
        let bytes = &block[frame.at..frame.end()];
        let nonce: [u8; 12] = std::array::from_fn(|i| bytes[i]);
        let (content, tag) = bytes[HEAD..].split_at(frame.len);
        let tag: [u8; TAG] = std::array::from_fn(|i| tag[i]);
        let associated = associated_data(position + frame.at as u64, [bytes[12], bytes[13]]);
        let Ok(buffer) = InOutBuf::new(content, out) else { return false };
        let tag: Tag = tag.into();
        self.0.decrypt_inout_detached(&Nonce::from(nonce), &associated, buffer, &tag).is_ok()
    }
}

fn nonce(offset: u64, generation: u64) -> Nonce {
    let (offset, generation) = (offset.to_le_bytes(), generation.to_le_bytes());
    std::array::from_fn(|i| if i < 6 { offset[i] } else { generation[i - 6] }).into()
}

fn associated_data(position: u64, len: [u8; 2]) -> [u8; 10] {
    let position = position.to_le_bytes();
    std::array::from_fn(|i| if i < 8 { position[i] } else { len[i - 8] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_and_every_other_position_of_a_frame_is_detected() {
        let cipher = FrameCipher::new(&zeroize::Zeroizing::new([3; 32]));
        let mut block = Vec::new();
        cipher.seal(b"content", 100, 0, 8192, &mut block, |_| {}).unwrap();
        let open = |block: &[u8], position: u64| {
            let frame = Frame::parse(block, 0)?;
            let mut out = vec![0; frame.len];
            cipher.open(block, &frame, position, &mut out).then_some(out)
        };
        assert_eq!(open(&block, 8192).unwrap(), b"content");
        assert!(open(&block, 4096).is_none());
        for bit in 0..block.len() * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(open(&block, 8192).is_none(), "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
