//! Costs of a store under a workload.

use serde::Serialize;

use crate::Breakdown;

/// Costs of a store with given settings under a workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Costs {
    /// Bytes written per byte that the user writes, by stage.
    pub writes: Breakdown,
    /// Sum of `writes`.
    pub write_amplification: f64,
    /// Read requests to storage per lookup of an existing key.
    pub reads_per_lookup: f64,
    /// Bytes of memory that grow with the number of keys: filters, indexes, items in memory.
    pub index_bytes: f64,
    /// Upper limit of the bytes of memory that depend on the settings only: write buffers, caches.
    pub buffer_bytes: f64,
    /// Upper limit of the bytes on the device.
    pub space_bytes: f64,
}

impl Costs {
    /// Bytes of memory in total.
    pub fn memory_bytes(&self) -> f64 {
        self.index_bytes + self.buffer_bytes
    }
}
