//! A model of a device: its busy time, computed from counted requests.
//!
//! A device has six parameters. Its busy time is the latency of all requests, of which it serves
//! `parallelism` at once, plus the transfer time of all bytes, plus the syncs, which are served one
//! by one:
//!
//! ```text
//! time = (reads · read_latency + writes · write_latency) / parallelism
//!      + bytes_read / read_rate + bytes_written / write_rate + syncs · sync_latency
//! ```
//!
//! Invariant: the time is linear in the counts, so the times of parts add up to the time of the
//! whole. It is computed from counts alone: nothing sleeps, and the machine that runs the test has
//! no influence.
//!
//! This is the simplest affine cost model (latency plus size over bandwidth) that distinguishes
//! seeks from streaming. The presets have round numbers of their class.

use std::time::Duration;

use siltstone_engine::IoCounts;

/// The performance of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    /// The name in reports.
    pub name: &'static str,
    /// The latency of a read request.
    pub read_latency: Duration,
    /// The latency of a write request.
    pub write_latency: Duration,
    /// Sustained read bandwidth; 0: transfers take no time.
    pub read_bytes_per_second: u64,
    /// Sustained write bandwidth; 0: transfers take no time.
    pub write_bytes_per_second: u64,
    /// The time of a sync beyond that of the writes before it.
    pub sync_latency: Duration,
    /// Requests served in parallel; 0 counts as 1.
    pub parallelism: u32,
}

impl Device {
    /// A data-center NVMe drive, PCIe 3 ×4, with a power-safe write cache.
    pub const NVME_SSD: Device = Device {
        name: "NVMe SSD",
        read_latency: Duration::from_micros(80),
        write_latency: Duration::from_micros(20),
        read_bytes_per_second: 3_200_000_000,
        write_bytes_per_second: 2_000_000_000,
        sync_latency: Duration::from_micros(30),
        parallelism: 64,
    };

    /// A SATA drive with a volatile cache, which a sync flushes.
    pub const SATA_SSD: Device = Device {
        name: "SATA SSD",
        read_latency: Duration::from_micros(100),
        write_latency: Duration::from_micros(60),
        read_bytes_per_second: 550_000_000,
        write_bytes_per_second: 500_000_000,
        sync_latency: Duration::from_millis(2),
        parallelism: 10,
    };

    /// A disk of 7200 rotations per minute: half a rotation and an average seek per request.
    pub const HDD: Device = Device {
        name: "HDD",
        read_latency: Duration::from_millis(8),
        write_latency: Duration::from_millis(8),
        read_bytes_per_second: 200_000_000,
        write_bytes_per_second: 200_000_000,
        sync_latency: Duration::from_millis(8),
        parallelism: 1,
    };

    /// The busy time for these requests.
    pub fn time(&self, counts: &IoCounts) -> Duration {
        let latency = counts.reads as f64 * self.read_latency.as_secs_f64()
            + counts.writes as f64 * self.write_latency.as_secs_f64();
        let seconds = latency / f64::from(self.parallelism.max(1))
            + transfer(counts.bytes_read, self.read_bytes_per_second)
            + transfer(counts.bytes_written, self.write_bytes_per_second)
            + counts.syncs as f64 * self.sync_latency.as_secs_f64();
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

fn transfer(bytes: u64, bytes_per_second: u64) -> f64 {
    if bytes_per_second == 0 { 0.0 } else { bytes as f64 / bytes_per_second as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parallel_requests_share_latency_but_not_bandwidth() {
        let device = Device {
            name: "test",
            read_latency: Duration::from_millis(10),
            write_latency: Duration::from_millis(20),
            read_bytes_per_second: 1000,
            write_bytes_per_second: 500,
            sync_latency: Duration::from_millis(5),
            parallelism: 2,
        };
        let counts =
            IoCounts { reads: 4, bytes_read: 1000, writes: 1, bytes_written: 1000, syncs: 2 };
        let expected = Duration::from_millis((4 * 10 + 20) / 2 + 1000 + 2000 + 2 * 5);
        assert_eq!(device.time(&counts), expected);
        assert_eq!(device.time(&IoCounts::default()), Duration::ZERO);
        let huge = IoCounts { syncs: u64::MAX, ..IoCounts::default() };
        assert!(device.time(&huge) > Duration::from_secs(1 << 50));
    }

    #[test]
    fn presets_are_ordered_by_the_time_of_a_random_read() {
        let read = IoCounts { reads: 1, bytes_read: 4096, ..IoCounts::default() };
        let times =
            [Device::NVME_SSD, Device::SATA_SSD, Device::HDD].map(|device| device.time(&read));
        assert!(times.is_sorted(), "{times:?}");
    }
}
