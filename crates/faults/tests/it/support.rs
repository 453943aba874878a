//! Files whose bytes and names are durable, and what a power cut leaves of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use siltstone_engine::{Purpose, Result};
use siltstone_faults::FaultyVfs;
use siltstone_vfs::{File, Mode, Vfs};

pub(crate) const WHY: Purpose = Purpose::Log;
pub(crate) const SECTOR: usize = 512;

pub(crate) fn every_way(vfs: &FaultyVfs) -> impl Iterator<Item = (u64, FaultyVfs)> {
    (0..1000).map(|seed| (seed, vfs.survivors(seed)))
}

pub(crate) fn durable_file(vfs: &dyn Vfs, name: &str, bytes: &[u8]) -> Arc<dyn File> {
    let file = vfs.create(name).unwrap();
    file.write_at(0, bytes, WHY).unwrap();
    file.sync(WHY).unwrap();
    vfs.sync_dir(WHY).unwrap();
    file
}

/// All files with their bytes.
pub(crate) fn contents(vfs: &FaultyVfs) -> Vec<(String, Vec<u8>)> {
    let files = vfs.files().into_iter();
    files.map(|file| (file.path.clone(), vfs.read_raw(&file.path).unwrap())).collect()
}

/// The set of outcomes over all survivors.
pub(crate) fn outcomes<T: Ord>(vfs: &FaultyVfs, look: impl Fn(&FaultyVfs) -> T) -> BTreeSet<T> {
    every_way(vfs).map(|(_, survivor)| look(&survivor)).collect()
}

/// A random generator for histories of changes.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

/// Replaces `CURRENT` as for a new manifest.
pub(crate) fn replace(vfs: &dyn Vfs, bytes: &[u8]) -> Result<()> {
    if vfs.exists("tmp")? {
        vfs.remove("tmp")?;
    }
    let file = vfs.create("tmp")?;
    for (i, part) in bytes.chunks(700).enumerate() {
        file.write_at(i as u64 * 700, part, WHY)?;
    }
    file.sync(WHY)?;
    vfs.rename("tmp", "CURRENT")?;
    vfs.sync_dir(WHY)
}

pub(crate) fn current(vfs: &dyn Vfs) -> Option<u8> {
    let file = vfs.open("CURRENT", Mode::Read).ok()?;
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(0, &mut bytes, WHY).unwrap();
    assert_eq!(bytes.len(), 2000, "a torn CURRENT");
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a torn CURRENT");
    Some(bytes[0])
}
