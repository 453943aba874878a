//! Files of the engine: their names, their checksums, and when they go.
//!
//! ```text
//!   000012.htable   a table of buckets, or a hash-ordered run     (htable)
//!   000013.bloom    the BloomCluster of a container               (cluster)
//!   000014.log      the write-ahead log                           (siltstone_table::log)
//!   frame := bytes  crc32c:u32        checksum over file number, place in the file, bytes
//! ```
//!
//! Numbers are drawn from one sequence, so a checksum that is seeded by number and place binds a
//! byte to its file.
//!
//! Invariant: a file that was retired is removed when its last reader lets go, not before.
//!
//! Source: the house's rules for files; see ARCHITECTURE.md.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use siltstone_engine::{Error, IoCounts, Purpose, Result};
use siltstone_table::{FileKind, FileNumber, parse_file_name};
use siltstone_vfs::{File, Mode, Overlay, Vfs};

/// Bytes of a frame behind what is stored.
pub(crate) const FRAME_TRAILER: usize = 4;

/// The kinds of files that this engine has.
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

    /// The kind and number by a name; `None` for any name that this engine would not write.
    pub(crate) fn parse(name: &str) -> Option<(Kind, u64)> {
        let (digits, extension) = name.split_once('.')?;
        let kind = match extension {
            "htable" => Kind::HTable,
            "bloom" => Kind::Cluster,
            "log" => Kind::Log,
            _ => return None,
        };
        // The shared parser judges the digits.
        let (_, number) = parse_file_name(&format!("{digits}.log"))?;
        Some((kind, number.0))
    }
}

/// Where files lie: media by level.
#[derive(Clone)]
pub(crate) struct Homes {
    /// The log, the manifest, and the files of all levels that have no other home.
    pub(crate) main: Arc<dyn Vfs>,
    /// The second medium, for so many levels from the top.
    pub(crate) upper: Option<(Arc<dyn Vfs>, usize)>,
}

impl Homes {
    /// Where new files of `level` go.
    pub(crate) fn of(&self, level: usize) -> &Arc<dyn Vfs> {
        match &self.upper {
            Some((vfs, levels)) if level < *levels => vfs,
            _ => &self.main,
        }
    }

    /// Requests and bytes so far of all media that count them, by purpose.
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

    /// The same media, seen through memory that keeps what is written.
    pub(crate) fn without_changes(&self) -> Homes {
        let over = |vfs: &Arc<dyn Vfs>| -> Arc<dyn Vfs> { Arc::new(Overlay::new(vfs.clone())) };
        let upper = self.upper.as_ref().map(|(vfs, levels)| (over(vfs), *levels));
        Homes { main: over(&self.main), upper }
    }

    /// Every medium.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<dyn Vfs>> {
        std::iter::once(&self.main).chain(self.upper.iter().map(|(vfs, _)| vfs))
    }

    /// Makes the names of new files durable.
    pub(crate) fn sync_dirs(&self, purpose: Purpose) -> Result<()> {
        self.all().try_for_each(|vfs| vfs.sync_dir(purpose))
    }
}

/// The checksums of one file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileSum(u32);

impl FileSum {
    pub(crate) fn new(number: u64) -> Self {
        FileSum(crc32c::crc32c(&number.to_le_bytes()))
    }

    /// The checksum of `bytes` at `offset` of the file.
    #[inline]
    pub(crate) fn of(self, offset: u64, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c_append(self.0, &offset.to_le_bytes()), bytes)
    }

    /// Appends the frame of `bytes`, which will stand at `offset`, to `out`.
    pub(crate) fn frame(self, out: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
        out.extend_from_slice(bytes);
        out.extend_from_slice(&self.of(offset, bytes).to_le_bytes());
    }

    /// Checks a frame that was read from `offset` and gives what is stored in it.
    pub(crate) fn open(self, offset: u64, frame: &[u8]) -> Option<&[u8]> {
        let (bytes, crc) = frame.split_last_chunk::<FRAME_TRAILER>()?;
        (self.of(offset, bytes) == u32::from_le_bytes(*crc)).then_some(bytes)
    }
}

/// A file that versions name. When the last of them is gone and it was retired, it is removed.
pub(crate) struct NamedFile {
    pub(crate) number: u64,
    pub(crate) name: String,
    pub(crate) sum: FileSum,
    file: Arc<dyn File>,
    vfs: Arc<dyn Vfs>,
    /// On the second medium.
    is_elsewhere: bool,
    is_retired: AtomicBool,
}

impl NamedFile {
    /// Opens the file that the manifest names, on whichever medium it is: what the options said of
    /// media when it was written may not be what they say now.
    ///
    /// # Errors
    /// `Corruption` if it is missing; the medium's.
    pub(crate) fn open(homes: &Homes, kind: Kind, number: u64) -> Result<Self> {
        let name = kind.name(number);
        for vfs in homes.all() {
            match vfs.open(&name, Mode::Read) {
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
                Ok(file) => {
                    let (vfs, sum) = (vfs.clone(), FileSum::new(number));
                    let is_elsewhere = !Arc::ptr_eq(&vfs, &homes.main);
                    let is_retired = AtomicBool::new(false);
                    return Ok(NamedFile {
                        number,
                        name,
                        sum,
                        file,
                        vfs,
                        is_elsewhere,
                        is_retired,
                    });
                }
            }
        }
        Err(Error::corruption(&name, 0, "the manifest names this file, and it is missing"))
    }

    /// The medium on which it lies.
    pub(crate) fn vfs(&self) -> &Arc<dyn Vfs> {
        &self.vfs
    }

    pub(crate) fn len(&self) -> Result<u64> {
        self.file.len()
    }

    /// Fills `buf`; a file that ends before is damage, since files never shrink.
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Result<()> {
        self.file.read_at(offset, buf, purpose).map_err(|error| match error {
            Error::Io { kind: std::io::ErrorKind::UnexpectedEof, .. } => {
                self.damaged(offset, "the file ends too early")
            }
            error => error,
        })
    }

    /// The contents of the frame of `bytes` bytes at `offset`, its trailer counted.
    pub(crate) fn read_frame(&self, offset: u64, bytes: u64, purpose: Purpose) -> Result<Vec<u8>> {
        let mut frame = vec![0; bytes as usize];
        self.read(offset, &mut frame, purpose)?;
        let Some(len) = self.sum.open(offset, &frame).map(<[u8]>::len) else {
            return Err(self.damaged(offset, "a frame does not match its checksum"));
        };
        frame.truncate(len);
        Ok(frame)
    }

    pub(crate) fn damaged(&self, offset: u64, reason: impl Into<String>) -> Error {
        Error::corruption(self.place(), offset, reason)
    }

    /// What to call it in messages: who looks for it in the table's own directory is to find it.
    pub(crate) fn place(&self) -> String {
        match self.is_elsewhere {
            true => format!("{}/{}", self.vfs.name(), self.name),
            false => self.name.clone(),
        }
    }

    /// No version made from now on names this file.
    pub(crate) fn retire(&self) {
        self.is_retired.store(true, Ordering::Release);
    }
}

impl Drop for NamedFile {
    fn drop(&mut self) {
        if self.is_retired.load(Ordering::Acquire) {
            // What stays behind by a fault is garbage that the next open removes.
            let _ = self.vfs.remove(&self.name);
        }
    }
}

/// Writes a file front to back in large requests.
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

    /// Where the next byte goes.
    pub(crate) fn offset(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Writes out what is buffered if it fills a request.
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

    /// Writes the rest and makes the file durable, its name excepted; answers its length.
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
    fn do_names_come_back_and_names_of_others_stay_alone() {
        for kind in [Kind::HTable, Kind::Cluster, Kind::Log] {
            assert_eq!(Kind::parse(&kind.name(12)), Some((kind, 12)));
        }
        for other in ["12.htable", "000012.sst", "CURRENT", "000012.htable.tmp", ".bloom"] {
            assert_eq!(Kind::parse(other), None, "{other}");
        }
    }

    #[test]
    fn is_a_frame_bound_to_its_file_and_place() {
        let mut frame = Vec::new();
        FileSum::new(1).frame(&mut frame, 40, b"bytes");
        assert_eq!(FileSum::new(1).open(40, &frame), Some(&b"bytes"[..]));
        assert!(FileSum::new(1).open(41, &frame).is_none());
        assert!(FileSum::new(2).open(40, &frame).is_none());
        frame[2] ^= 1;
        assert!(FileSum::new(1).open(40, &frame).is_none());
    }
}
