//! What is asked of the advisor.

use std::time::Duration;

use crate::Popularity;
use crate::error::{BadParameter, within};

use super::Costs;

/// A workload, and what there is to serve it with.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Which keys are read and written how often.
    pub popularity: Popularity,
    /// Mean bytes of a key.
    pub key_bytes: f64,
    /// Mean bytes of a value.
    pub value_bytes: f64,
    /// The share of operations that are lookups; what is neither lookup nor scan is a write.
    pub reads: f64,
    /// The share that are scans of a range.
    pub scans: f64,
    /// Operations a second, if known: the flash's life and a history's versions are counted by it.
    pub ops_per_second: Option<f64>,
    /// Bytes of memory for the table; `None`: what it takes.
    pub memory_bytes: Option<f64>,
    /// Bytes of flash for the table; `None`: what it takes.
    pub flash_bytes: Option<f64>,
    /// The device.
    pub device: Device,
    /// What the table must be able to do.
    pub needs: Needs,
}

/// What a table must be able to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// Keys in order: range scans.
    pub order: bool,
    /// Data outlives the process.
    pub durability: bool,
    /// Reads at a snapshot.
    pub versions: bool,
    /// Reads as of any time since so long.
    pub history: Option<Duration>,
}

impl Default for Needs {
    /// Durability alone.
    fn default() -> Self {
        Needs { order: false, durability: true, versions: false, history: None }
    }
}

/// A flash device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Device {
    /// Reads of 4 KiB a second, with many at once.
    pub reads_per_second: f64,
    /// Bytes written a second, in large requests.
    pub written_bytes_per_second: f64,
    /// Times that each byte can be written.
    pub erase_cycles: f64,
}

impl Default for Device {
    /// An ordinary NVMe SSD: 200,000 reads and 1 GB a second, 3,000 cycles.
    fn default() -> Self {
        Device { reads_per_second: 2e5, written_bytes_per_second: 1e9, erase_cycles: 3000.0 }
    }
}

impl Wanted {
    /// Half lookups and half writes, durable, on an ordinary device, with no limits.
    pub fn new(popularity: Popularity, key_bytes: f64, value_bytes: f64) -> Self {
        Wanted {
            popularity,
            key_bytes,
            value_bytes,
            reads: 0.5,
            scans: 0.0,
            ops_per_second: None,
            memory_bytes: None,
            flash_bytes: None,
            device: Device::default(),
            needs: Needs::default(),
        }
    }

    /// The same asked of other keys.
    pub fn scaled(&self, popularity: Popularity) -> Self {
        Wanted { popularity, ..self.clone() }
    }

    /// How many keys there are.
    pub fn keys(&self) -> f64 {
        self.popularity.keys()
    }

    /// Bytes of a key and its value.
    pub fn item_bytes(&self) -> f64 {
        self.key_bytes + self.value_bytes
    }

    /// The share of operations that write.
    pub fn writes(&self) -> f64 {
        (1.0 - self.reads - self.scans).max(0.0)
    }

    pub(super) fn check(&self) -> Result<(), BadParameter> {
        let share = "give shares of operations from 0 to 1, in sum 1 at most";
        within("key_bytes", self.key_bytes, 1.0, 65536.0, "give 1 byte to 64 KiB")?;
        within("value_bytes", self.value_bytes, 0.0, 512e6, "give up to 512 MB")?;
        within("reads", self.reads, 0.0, 1.0, share)?;
        within("scans", self.scans, 0.0, 1.0 - self.reads, share)?;
        let above_zero = "give a number above zero";
        for (name, given) in [
            ("ops", self.ops_per_second),
            ("memory", self.memory_bytes),
            ("flash", self.flash_bytes),
            ("read-iops", Some(self.device.reads_per_second)),
            ("write-bandwidth", Some(self.device.written_bytes_per_second)),
            ("cycles", Some(self.device.erase_cycles)),
        ] {
            if let Some(value) = given {
                within(name, value, f64::MIN_POSITIVE, 1e24, above_zero)?;
            }
        }
        Ok(())
    }

    /// Microseconds that the device is busy for an operation, on average, of a store with these costs. A scan
    /// is a lookup here: how long it is, nobody said.
    pub fn device_us(&self, write_amplification: f64, reads_per_lookup: f64) -> f64 {
        let reads = (self.reads + self.scans) * reads_per_lookup / self.device.reads_per_second;
        let written = self.writes() * self.item_bytes() * write_amplification;
        (reads + written / self.device.written_bytes_per_second) * 1e6
    }

    /// Years until each byte of the flash has been written as often as it can be.
    pub(super) fn lifetime_years(&self, costs: &Costs) -> Option<f64> {
        const YEAR_SECONDS: f64 = 365.25 * 86_400.0;
        let (ops, flash) = (self.ops_per_second?, self.flash_bytes?);
        let written = ops * self.writes() * self.item_bytes() * costs.write_amplification;
        (written > 0.0).then(|| flash * self.device.erase_cycles / written / YEAR_SECONDS)
    }
}
