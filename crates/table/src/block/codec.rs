//! The compressions of blocks, which features switch off, and why a block cannot be read.

use siltstone_engine::Error;

/// A form of compressed blocks, which a build may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// LZ4, with the feature `lz4`.
    Lz4,
    /// Zstandard, with the feature `zstd`.
    Zstandard,
}

impl Codec {
    /// The Cargo feature with which a build has it.
    pub fn feature(self) -> &'static str {
        match self {
            Codec::Lz4 => "lz4",
            Codec::Zstandard => "zstd",
        }
    }

    /// Whether this build has it.
    pub fn is_present(self) -> bool {
        match self {
            Codec::Lz4 => cfg!(feature = "lz4"),
            Codec::Zstandard => cfg!(feature = "zstd"),
        }
    }

    /// The way out, for messages.
    pub fn advice(self) -> String {
        let feature = self.feature();
        format!(
            "this program was built without {feature}: build it with the feature '{feature}' of the crate siltstone"
        )
    }

    /// The error for compressing without it.
    #[cfg(not(all(feature = "lz4", feature = "zstd")))]
    pub(super) fn missing(self) -> std::io::Error {
        std::io::Error::new(std::io::ErrorKind::Unsupported, self.advice())
    }
}

/// Why a frame cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameError {
    /// It is damaged, in this way.
    Damaged(&'static str),
    /// It matches its checksum, and this build lacks its compression.
    Missing(Codec),
}

impl FrameError {
    /// The error for the frame at `offset` of a file. A block whose compression is missing is
    /// intact: no repair must give it up.
    pub(crate) fn at(self, file: &str, offset: u64) -> Error {
        match self {
            FrameError::Damaged(reason) => Error::corruption(file, offset, reason),
            FrameError::Missing(codec) => Error::Refused {
                path: file.to_owned(),
                reason: format!(
                    "the block at byte {offset} is compressed by {}, and {}; the file is intact",
                    codec.feature(),
                    codec.advice()
                ),
            },
        }
    }
}
