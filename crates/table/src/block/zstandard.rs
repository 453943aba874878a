//! Zstandard, with the feature `zstd`. Without it every call says that it is missing.

#[cfg(not(feature = "zstd"))]
pub(super) use missing::{Compressor, PreparedDictionary, decompress, train};
#[cfg(feature = "zstd")]
pub(super) use present::{Compressor, PreparedDictionary, decompress, train};

#[cfg(feature = "zstd")]
mod present {
    use std::cell::RefCell;

    use zstd::dict::DecoderDictionary;
    use zstd::zstd_safe::{CParameter, DCtx, compress_bound};

    use super::super::codec::Codec;

    /// A compressor that reuses its memory between blocks.
    pub(in super::super) struct Compressor(zstd::bulk::Compressor<'static>);

    impl Compressor {
        pub(in super::super) fn new(level: i32) -> std::io::Result<Self> {
            Ok(Compressor(zstd::bulk::Compressor::new(level)?))
        }

        /// A compressor whose frames begin with `dictionary`.
        pub(in super::super) fn with_dictionary(
            level: i32,
            dictionary: &[u8],
        ) -> std::io::Result<Self> {
            let mut zstd = zstd::bulk::Compressor::with_dictionary(level, dictionary)?;
            // The file has one dictionary: its number in each block would take 4 bytes.
            zstd.set_parameter(CParameter::DictIdFlag(false))?;
            Ok(Compressor(zstd))
        }

        /// Appends the frame of `contents` to `out`.
        pub(in super::super) fn compress(
            &mut self,
            contents: &[u8],
            out: &mut Vec<u8>,
        ) -> std::io::Result<()> {
            let at = out.len();
            out.resize(at + compress_bound(contents.len()), 0);
            let len = self.0.compress_to_buffer(contents, &mut out[at..])?;
            out.truncate(at + len);
            Ok(())
        }
    }

    /// A dictionary that is prepared for decompression.
    pub(in super::super) struct PreparedDictionary(DecoderDictionary<'static>);

    impl PreparedDictionary {
        /// `None` if the bytes are no dictionary.
        pub(in super::super) fn new(bytes: &[u8]) -> Result<Option<Self>, Codec> {
            Ok(DecoderDictionary::try_copy(bytes).ok().map(PreparedDictionary))
        }

        pub(in super::super) fn memory_bytes(&self) -> usize {
            self.0.as_ddict().sizeof()
        }
    }

    thread_local! {
        static CONTEXT: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
    }

    /// Decompresses a frame into `contents`, up to its capacity, and returns the length; `None` if
    /// that fails.
    pub(in super::super) fn decompress(
        packed: &[u8],
        dictionary: Option<&PreparedDictionary>,
        contents: &mut Vec<u8>,
    ) -> Result<Option<usize>, Codec> {
        Ok(CONTEXT.with_borrow_mut(|context| {
            // A context takes 150 KiB, so each thread reuses its own.
            if context.is_none() {
                *context = DCtx::try_create();
            }
            let context = context.as_mut()?;
            match dictionary {
                Some(dictionary) => {
                    context.decompress_using_ddict(contents, packed, dictionary.0.as_ddict()).ok()
                }
                None => context.decompress(contents, packed).ok(),
            }
        }))
    }

    /// Trains a dictionary from samples that follow each other; `None` if they have too little in
    /// common.
    pub(in super::super) fn train(
        samples: &[u8],
        sizes: &[usize],
        max_bytes: usize,
    ) -> Option<Vec<u8>> {
        zstd::dict::from_continuous(samples, sizes, max_bytes).ok()
    }
}

#[cfg(not(feature = "zstd"))]
mod missing {
    use super::super::codec::Codec;

    /// There is none.
    pub(in super::super) enum Compressor {}

    impl Compressor {
        pub(in super::super) fn new(_level: i32) -> std::io::Result<Self> {
            Err(Codec::Zstandard.missing())
        }

        pub(in super::super) fn with_dictionary(
            level: i32,
            _dictionary: &[u8],
        ) -> std::io::Result<Self> {
            Self::new(level)
        }

        pub(in super::super) fn compress(
            &mut self,
            _contents: &[u8],
            _out: &mut Vec<u8>,
        ) -> std::io::Result<()> {
            match *self {}
        }
    }

    /// There is none.
    pub(in super::super) enum PreparedDictionary {}

    impl PreparedDictionary {
        pub(in super::super) fn new(_bytes: &[u8]) -> Result<Option<Self>, Codec> {
            Err(Codec::Zstandard)
        }

        pub(in super::super) fn memory_bytes(&self) -> usize {
            match *self {}
        }
    }

    pub(in super::super) fn decompress(
        _packed: &[u8],
        _dictionary: Option<&PreparedDictionary>,
        _contents: &mut Vec<u8>,
    ) -> Result<Option<usize>, Codec> {
        Err(Codec::Zstandard)
    }

    pub(in super::super) fn train(
        _samples: &[u8],
        _sizes: &[usize],
        _max_bytes: usize,
    ) -> Option<Vec<u8>> {
        None
    }
}
