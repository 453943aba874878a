//! The workloads of the comparison.
//!
//! A group is one fresh store and the workloads that run on it in turn. Its size follows from the
//! number of keys that the user gives.
//!
//! Invariant: a group is data, the same for all stores.

/// A fresh store and its workloads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Group {
    /// Its name on the command line and in the table.
    pub name: &'static str,
    /// The workloads, in order, as `bench --workload` takes them.
    pub workloads: &'static str,
    /// Threads of each workload.
    pub threads: usize,
    /// Keys of the group per key of the comparison.
    pub keys_share: f64,
    /// Operations of each workload per key of the group.
    pub ops_share: f64,
    /// Bytes per value.
    pub value_bytes: u32,
    /// Further options of `bench`.
    pub options: &'static [&'static str],
}

impl Group {
    const fn new(name: &'static str, workloads: &'static str) -> Self {
        Group {
            name,
            workloads,
            threads: 1,
            keys_share: 1.0,
            ops_share: 1.0,
            value_bytes: 100,
            options: &[],
        }
    }

    const fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Operations as a share of the keys.
    const fn ops(mut self, share: f64) -> Self {
        self.ops_share = share;
        self
    }

    const fn values(mut self, bytes: u32, keys_share: f64) -> Self {
        self.value_bytes = bytes;
        self.keys_share = keys_share;
        self
    }

    const fn with(mut self, options: &'static [&'static str]) -> Self {
        self.options = options;
        self
    }

    /// The name of one of its workloads in tables and charts.
    pub fn title(&self, workload: &str) -> String {
        match self.workloads.contains(',') {
            true => format!("{} {workload}", self.name),
            false => self.name.to_owned(),
        }
    }

    /// The arguments of `bench` for this group, without the store.
    pub fn arguments(&self, keys: u64) -> Vec<String> {
        let keys = ((keys as f64 * self.keys_share) as u64).max(1);
        let ops = ((keys as f64 * self.ops_share) as u64).max(1);
        let mut arguments: Vec<String> = [
            ("--workload", self.workloads.to_owned()),
            ("--keys", keys.to_string()),
            ("--ops", ops.to_string()),
            ("--threads", self.threads.to_string()),
            ("--value-size", self.value_bytes.to_string()),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect();
        arguments.extend(self.options.iter().map(|option| (*option).to_owned()));
        arguments
    }
}

/// A cache for all keys: gets do not leave the process.
const IN_MEMORY: &[&str] = &["--option", "cache=1GiB"];
const SCANS: &[&str] = &["--option", "cache=1GiB", "--seek-nexts", "100"];
const SMALL_CACHE: &[&str] = &["--option", "cache=64MiB"];
const SYNCED: &[&str] = &["--fsync"];
const ZIPF: &[&str] = &["--skew", "0.99"];
const RATE_100K: &[&str] = &["--rate", "100000"];
const RATE_300K: &[&str] = &["--rate", "300000"];

/// All groups, in the order of the table.
pub const GROUPS: &[Group] = &[
    Group::new("fill", "fillrandom"),
    Group::new("fill-2-threads", "fillrandom").threads(2),
    Group::new("fill-4-threads", "fillrandom").threads(4),
    Group::new("fill-8-threads", "fillrandom").threads(8),
    Group::new("fill-100k-arrivals", "fillrandom").with(RATE_100K),
    Group::new("fill-300k-arrivals", "fillrandom").with(RATE_300K),
    Group::new("synced", "fillrandom").ops(0.005).with(SYNCED),
    Group::new("synced-16-threads", "fillrandom").threads(16).ops(0.02).with(SYNCED),
    Group::new("in-memory", "readrandom,readmissing,seekrandom").with(IN_MEMORY),
    Group::new("in-memory-2-threads", "readrandom,readmissing").threads(2).with(IN_MEMORY),
    Group::new("scan-100", "seekrandom").ops(0.02).with(SCANS),
    Group::new("small-cache", "readrandom,readmissing,seekrandom").ops(0.2).with(SMALL_CACHE),
    Group::new("zipf", "overwrite,ycsb-a,ycsb-b").with(ZIPF),
    Group::new("1-kib", "fillrandom,readrandom").values(1024, 0.2),
    Group::new("16-kib", "fillrandom,readrandom").values(16_384, 0.02),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_names_are_distinct() {
        let mut names: Vec<_> = GROUPS.iter().map(|group| group.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), GROUPS.len());
    }

    #[test]
    fn arguments_scale_with_the_keys() {
        let group = GROUPS.iter().find(|group| group.name == "1-kib").unwrap();
        let line = group.arguments(1000).join(" ");
        assert!(line.contains("--keys 200 --ops 200 ") && line.contains("--value-size 1024"));
        let synced = GROUPS.iter().find(|group| group.name == "synced").unwrap();
        assert!(synced.arguments(1000).join(" ").ends_with("--value-size 100 --fsync"));
        assert!(synced.arguments(1).contains(&"1".to_owned()));
    }
}
