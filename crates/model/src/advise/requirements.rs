//! Input of the advisor: a workload, the resources, and the needed capabilities.

use std::time::Duration;

use crate::Popularity;
use crate::error::{InvalidParameter, within};

use super::costs::Costs;

/// A workload, the resources for it, and the capabilities that it needs.
#[derive(Debug, Clone)]
pub struct Requirements {
    /// Popularity of keys, for reads and writes.
    pub popularity: Popularity,
    /// Mean bytes per key.
    pub key_bytes: f64,
    /// Mean bytes per value.
    pub value_bytes: f64,
    /// Share of operations that are lookups; the rest after lookups and scans are writes.
    pub reads: f64,
    /// Share of operations that are range scans.
    pub scans: f64,
    /// Operations per second, if known: needed for the device's lifetime and for history.
    pub ops_per_second: Option<f64>,
    /// Limit of the bytes of memory for the table; `None`: no limit.
    pub memory_bytes: Option<f64>,
    /// Limit of the bytes of flash for the table; `None`: no limit.
    pub flash_bytes: Option<f64>,
    /// The device.
    pub device: Device,
    /// Needed capabilities.
    pub needs: Needs,
}

/// Capabilities that a table must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// Ordered keys: range scans.
    pub order: bool,
    /// Data survives a restart.
    pub durability: bool,
    /// Reads at a snapshot.
    pub versions: bool,
    /// Reads as of any time within this duration before now.
    pub history: Option<Duration>,
}

impl Default for Needs {
    /// Only durability.
    fn default() -> Self {
        Needs { order: false, durability: true, versions: false, history: None }
    }
}

/// A flash device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Device {
    /// Reads of 4 KiB per second, with many in flight.
    pub reads_per_second: f64,
    /// Bytes written per second, in large requests.
    pub written_bytes_per_second: f64,
    /// Erase cycles until the device is worn out.
    pub erase_cycles: f64,
}

impl Default for Device {
    /// A typical NVMe SSD: 200,000 reads and 1 GB per second, 3,000 cycles.
    fn default() -> Self {
        Device { reads_per_second: 2e5, written_bytes_per_second: 1e9, erase_cycles: 3000.0 }
    }
}

impl Requirements {
    /// Half lookups and half writes, durable, on a typical device, without limits.
    pub fn new(popularity: Popularity, key_bytes: f64, value_bytes: f64) -> Self {
        Requirements {
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

    /// The same requirements with another popularity of keys.
    pub fn scaled(&self, popularity: Popularity) -> Self {
        Requirements { popularity, ..self.clone() }
    }

    /// Number of keys.
    pub fn keys(&self) -> f64 {
        self.popularity.keys()
    }

    /// Bytes per item, key and value.
    pub fn item_bytes(&self) -> f64 {
        self.key_bytes + self.value_bytes
    }

    /// Share of operations that are writes.
    pub fn writes(&self) -> f64 {
        (1.0 - self.reads - self.scans).max(0.0)
    }

    pub(super) fn check(&self) -> Result<(), InvalidParameter> {
        let share = "give shares of operations from 0 to 1, with a sum of at most 1";
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

    /// Mean time per operation for which the device is busy, in microseconds, for a store with
    /// these costs. A scan counts as one lookup, because its length is unknown.
    pub fn device_us(&self, write_amplification: f64, reads_per_lookup: f64) -> f64 {
        let reads = (self.reads + self.scans) * reads_per_lookup / self.device.reads_per_second;
        let written = self.writes() * self.item_bytes() * write_amplification;
        (reads + written / self.device.written_bytes_per_second) * 1e6
    }

    /// Years until the device is worn out.
    pub(super) fn lifetime_years(&self, costs: &Costs) -> Option<f64> {
        const YEAR_SECONDS: f64 = 365.25 * 86_400.0;
        let (ops, flash) = (self.ops_per_second?, self.flash_bytes?);
        let written = ops * self.writes() * self.item_bytes() * costs.write_amplification;
        (written > 0.0).then(|| flash * self.device.erase_cycles / written / YEAR_SECONDS)
    }
}
