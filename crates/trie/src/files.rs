//! The files of the engine: names, checksums, and deferred removal.
//!
//! ```text
//!   000012.htable   a hash table, or a hash-ordered run           (htable)
//!   000013.bloom    the BloomCluster of a container               (cluster)
//!   000014.log      the write-ahead log                           (siltstone_table::log)
//!   frame := bytes  crc32c:u32        checksum over file number, file offset, bytes
//! ```
//!
//! All files are numbered from one sequence, so a checksum that is seeded with number and offset
//! binds a byte to its file.
//!
//! Invariant: an obsolete file is removed when its last reader drops it, not before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use siltstone_engine::{Error, IoCounts, Purpose, Result};
use siltstone_table::{FileKind, FileNumber, FileSum, parse_file_name};
use siltstone_vfs::{FailStopVfs, File, Mode, Overlay, Vfs};

/// The kinds of files of this engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    HTable,
    Cluster,
    Log,
}

impl Kind {
    /// The name of the file of this kind with this number.
    pub(crate) fn name(self, number: u64) -> String {
        match self {
            Kind::HTable => format!("{}.htable", FileNumber(number)),
            Kind::Cluster => format!("{}.bloom", FileNumber(number)),
            Kind::Log => FileKind::Log.name(FileNumber(number)),
        }
    }

    /// The kind and number of a file; `None` for any name that this engine would not write.
    pub(crate) fn parse(name: &str) -> Option<(Kind, u64)> {
        let (digits, extension) = name.split_once('.')?;
        let kind = match extension {
            "htable" => Kind::HTable,
            "bloom" => Kind::Cluster,
            "log" => Kind::Log,
            _ => return None,
        };
        // The shared parser validates the digits.
        let (_, number) = parse_file_name(&format!("{digits}.log"))?;
        Some((kind, number.0))
    }
}

/// Whether a table writes files of this name, besides its manifest.
pub fn owns(name: &str) -> bool {
    Kind::parse(name).is_some()
}

/// The file systems of the table, by level.
#[derive(Clone)]
pub(crate) struct StorageTiers {
    /// The log, the manifest, and the files of the levels without another tier.
    pub(crate) main: Arc<dyn Vfs>,
    /// The fast tier, and the number of top levels on it.
    pub(crate) fast: Option<(Arc<dyn Vfs>, usize)>,
}

impl StorageTiers {
    /// The tiers of a table that is opened.
    pub(crate) fn new(main: Arc<dyn Vfs>, fast: Option<(Arc<dyn Vfs>, usize)>) -> Self {
        let fail_stop = |vfs| Arc::new(FailStopVfs::new(vfs));
        let fast = fast.map(|(vfs, levels)| (fail_stop(vfs) as Arc<dyn Vfs>, levels));
        StorageTiers { main: fail_stop(main), fast }
    }

    /// The tier for new files of `level`.
    pub(crate) fn for_level(&self, level: usize) -> &Arc<dyn Vfs> {
        match &self.fast {
            Some((vfs, levels)) if level < *levels => vfs,
            _ => &self.main,
        }
    }

    /// Requests and bytes of all tiers that count them, by purpose.
    pub(crate) fn io(&self) -> BTreeMap<&'static str, IoCounts> {
        let mut sum = BTreeMap::<_, IoCounts>::new();
        for counters in self.all().filter_map(|vfs| vfs.counters()) {
            for (purpose, io) in counters.snapshot() {
                let sum = sum.entry(purpose).or_default();
                sum.reads += io.reads;
                sum.bytes_read += io.bytes_read;
                sum.writes += io.writes;
                sum.bytes_written += io.bytes_written;
                sum.syncs += io.syncs;
            }
        }
        sum
    }

    /// The same tiers behind overlays that keep writes in memory.
    pub(crate) fn without_changes(&self) -> StorageTiers {
        let over = |vfs: &Arc<dyn Vfs>| -> Arc<dyn Vfs> { Arc::new(Overlay::new(vfs.clone())) };
        let fast = self.fast.as_ref().map(|(vfs, levels)| (over(vfs), *levels));
        StorageTiers { main: over(&self.main), fast }
    }

    /// Every tier.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<dyn Vfs>> {
        std::iter::once(&self.main).chain(self.fast.iter().map(|(vfs, _)| vfs))
    }

    /// Makes the names of new files durable.
    pub(crate) fn sync_dirs(&self, purpose: Purpose) -> Result<()> {
        self.all().try_for_each(|vfs| vfs.sync_dir(purpose))
    }
}

/// An open file of versions. It is removed when it is retired and the last version is dropped.
pub(crate) struct NamedFile {
    pub(crate) number: u64,
    pub(crate) name: String,
    pub(crate) sum: FileSum,
    file: Arc<dyn File>,
    vfs: Arc<dyn Vfs>,
    /// Whether it is on the fast tier.
    is_on_fast_tier: bool,
    is_retired: AtomicBool,
}

impl NamedFile {
    /// Opens the file that the manifest names, on whichever tier it is: the options may have
    /// changed since it was written.
    ///
    /// # Errors
    /// `Corruption` if it is missing; errors of the file system.
    pub(crate) fn open(tiers: &StorageTiers, kind: Kind, number: u64) -> Result<Self> {
        let name = kind.name(number);
        for vfs in tiers.all() {
            match vfs.open(&name, Mode::Read) {
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
                Ok(file) => {
                    let (vfs, sum) = (vfs.clone(), FileSum::new(number));
                    let is_on_fast_tier = !Arc::ptr_eq(&vfs, &tiers.main);
                    let is_retired = AtomicBool::new(false);
                    return Ok(NamedFile {
                        number,
                        name,
                        sum,
                        file,
                        vfs,
                        is_on_fast_tier,
                        is_retired,
                    });
                }
            }
        }
        Err(Error::corruption(&name, 0, "the manifest names this file, and it is missing"))
    }

    /// The file system of its tier.
    pub(crate) fn vfs(&self) -> &Arc<dyn Vfs> {
        &self.vfs
    }

    pub(crate) fn len(&self) -> Result<u64> {
        self.file.len()
    }

    /// Fills `buf`; a shorter file is corrupt, since files never shrink.
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Result<()> {
        self.file.read_at(offset, buf, purpose).map_err(|error| match error {
            Error::Io { kind: std::io::ErrorKind::UnexpectedEof, .. } => {
                self.corruption(offset, "the file ends too early")
            }
            error => error,
        })
    }

    /// See [`siltstone_vfs::File::begin_read`].
    pub(crate) fn begin_read(&self, offset: u64, bytes: u64) {
        self.file.begin_read(offset, bytes);
    }

    /// The content of the frame at `offset`, of `bytes` bytes with its trailer.
    pub(crate) fn read_frame(&self, offset: u64, bytes: u64, purpose: Purpose) -> Result<Vec<u8>> {
        let mut frame = vec![0; bytes as usize];
        self.read(offset, &mut frame, purpose)?;
        let Some(len) = self.sum.open(offset, &frame).map(<[u8]>::len) else {
            return Err(self.corruption(offset, "a frame does not match its checksum"));
        };
        frame.truncate(len);
        Ok(frame)
    }

    pub(crate) fn corruption(&self, offset: u64, reason: impl Into<String>) -> Error {
        Error::corruption(self.display_path(), offset, reason)
    }

    /// Its name in messages: a path if it is not in the table's own directory.
    pub(crate) fn display_path(&self) -> String {
        match self.is_on_fast_tier {
            true => format!("{}/{}", self.vfs.name(), self.name),
            false => self.name.clone(),
        }
    }

    /// Marks the file as obsolete: no later version names it.
    pub(crate) fn retire(&self) {
        self.is_retired.store(true, Ordering::Release);
    }
}

impl Drop for NamedFile {
    fn drop(&mut self) {
        if self.is_retired.load(Ordering::Acquire) {
            // If this fails, the next open removes the file.
            let _ = self.vfs.remove(&self.name);
        }
    }
}

/// Writes a file sequentially in large requests.
pub(crate) struct FileWriter<'a> {
    file: Arc<dyn File>,
    rate: &'a siltstone_runtime::RateLimiter,
    purpose: Purpose,
    pub(crate) buffer: Vec<u8>,
    written: u64,
}

const REQUEST_BYTES: usize = 1 << 20;

impl<'a> FileWriter<'a> {
    pub(crate) fn create(
        vfs: &dyn Vfs,
        name: &str,
        rate: &'a siltstone_runtime::RateLimiter,
        purpose: Purpose,
    ) -> Result<Self> {
        let file = vfs.create(name)?;
        Ok(FileWriter { file, rate, purpose, buffer: Vec::new(), written: 0 })
    }

    /// The offset of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Writes the buffer if it fills a request.
    pub(crate) fn flush_if_full(&mut self) -> Result<()> {
        if self.buffer.len() >= REQUEST_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        self.rate.take(self.buffer.len() as u64);
        self.file.write_at(self.written, &self.buffer, self.purpose)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the rest and makes the file durable, except for its name; returns its length.
    pub(crate) fn finish(mut self) -> Result<u64> {
        self.flush()?;
        self.file.sync(self.purpose)?;
        Ok(self.written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_names_are_parsed_and_other_names_are_ignored() {
        for kind in [Kind::HTable, Kind::Cluster, Kind::Log] {
            assert_eq!(Kind::parse(&kind.name(12)), Some((kind, 12)));
        }
        for other in ["12.htable", "000012.sst", "CURRENT", "000012.htable.tmp", ".bloom"] {
            assert_eq!(Kind::parse(other), None, "{other}");
        }
    }
}
