//! A report as a text table.
//!
//! One column per phase, followed by the peer's; one row per figure, without rows that are empty in
//! all columns. Below the table: the peak memory of each process, and a peer's warning, e.g. of a
//! slow build.
//!
//! Invariant: every number shown is a rounded number of the report.

use super::{Figures, LevelFigures, Percentiles, Report};

type Row = (&'static str, fn(&Figures) -> Option<String>);

const ROWS: &[Row] = &[
    ("operations", |f| Some(f.ops.to_string())),
    ("seconds", |f| Some(format!("{:.2}", f.seconds))),
    ("operations/s", |f| Some(format!("{:.0}", f.ops_per_second))),
    ("CPU µs per operation", |f| decimal(f.cpu_us_per_op)),
    ("resident memory", |f| f.rss_bytes.map(human)),
    ("user bytes written", |f| bytes_unless_zero(f.user_bytes_written)),
    ("media bytes written", |f| bytes_unless_zero(f.media_bytes_written)),
    ("process bytes written", |f| f.process_bytes_written.and_then(bytes_unless_zero)),
    ("device bytes written", |f| f.device_bytes_written.and_then(bytes_unless_zero)),
    ("NVM bytes stored", |f| bytes_unless_zero(f.nvm_bytes_stored)),
    ("write amplification", |f| decimal(f.write_amplification)),
    ("of it, by level 0, 1, …", |f| {
        let amplification = |level: &LevelFigures| decimal(level.write_amplification);
        let levels: Vec<_> = f.levels.iter().filter_map(amplification).collect();
        (!levels.is_empty()).then(|| levels.join(" + "))
    }),
    ("reads per lookup", |f| decimal(f.reads_per_lookup)),
    ("bytes read per lookup", |f| f.bytes_read_per_lookup.map(|b| format!("{b:.0}"))),
    ("memory bytes per key", |f| decimal(f.memory_bytes_per_key)),
    ("space", |f| bytes_unless_zero(f.space_bytes)),
    ("device time s, NVMe / SATA / HDD", |f| {
        let busy = f.device_seconds.as_ref()?;
        let of = |name: &str| busy.get(name).map(|seconds| format!("{seconds:.1}"));
        Some([of("NVMe SSD")?, of("SATA SSD")?, of("HDD")?].join(" / "))
    }),
    ("put µs p50/p99/p99.9", |f| percentiles(f.latency_us.put)),
    ("put µs p99.99/slowest 0.1 %/max", |f| tail(f.latency_us.put)),
    ("get µs p50/p99/p99.9", |f| percentiles(f.latency_us.get)),
    ("get µs p99.99/slowest 0.1 %/max", |f| tail(f.latency_us.get)),
    ("scan µs p50/p99/p99.9", |f| percentiles(f.latency_us.scan)),
    ("scan µs p99.99/slowest 0.1 %/max", |f| tail(f.latency_us.scan)),
    ("stalled ms", |f| {
        let longest = f.stall_ms.longest.map_or(String::new(), |ms| format!(" (longest {ms:.1})"));
        (f.stall_ms.total > 0.0).then(|| format!("{:.0}{longest}", f.stall_ms.total))
    }),
];

/// The report as lines of text.
pub fn table(report: &Report) -> String {
    let peers = report.peer.iter().flat_map(|peer| &peer.phases);
    let columns: Vec<&Figures> = report.phases.iter().chain(peers).collect();
    let mut lines = vec![
        std::iter::once(String::new()).chain(columns.iter().map(|f| f.engine.clone())).collect(),
        std::iter::once(String::new()).chain(columns.iter().map(|f| f.workload.clone())).collect(),
    ];
    for (name, value) in ROWS {
        let cells: Vec<_> = columns.iter().map(|figures| value(figures)).collect();
        if cells.iter().any(Option::is_some) {
            let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "–".to_owned()));
            lines.push(std::iter::once((*name).to_owned()).chain(cells).collect());
        }
    }
    let warning = report.peer.as_ref().and_then(|peer| {
        Some(format!("{} warns: {}\n", peer.total.engine, peer.settings.get("warning")?))
    });
    let reports = std::iter::once(report).chain(report.peer.as_deref());
    let peaks = reports.filter_map(|report| {
        let peak = report.peak_rss_bytes?;
        Some(format!("{}: peak memory {}\n", report.total.engine, human(peak)))
    });
    let peaks: String = peaks.collect();
    align(&lines) + &peaks + &warning.unwrap_or_default()
}

/// Aligns the first column to the left, the others to the right.
fn align(lines: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = lines.iter().map(|line| line[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..lines.first().map_or(0, Vec::len)).map(width).collect();
    let mut text = String::new();
    for line in lines {
        for (i, (cell, &width)) in line.iter().zip(&widths).enumerate() {
            match i {
                0 => text.push_str(&format!("{cell:<width$}")),
                _ => text.push_str(&format!("  {cell:>width$}")),
            }
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
    text
}

fn decimal(value: Option<f64>) -> Option<String> {
    value.map(|value| format!("{value:.2}"))
}

fn percentiles(p: Option<Percentiles>) -> Option<String> {
    p.map(|p| format!("{:.1} / {:.1} / {:.1}", p.p50, p.p99, p.p999))
}

fn tail(p: Option<Percentiles>) -> Option<String> {
    p.map(|p| format!("{:.1} / {:.1} / {:.1}", p.p9999, p.slowest_mean, p.max))
}

fn bytes_unless_zero(bytes: u64) -> Option<String> {
    (bytes > 0).then(|| human(bytes))
}

fn human(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_empty_rows_omitted() {
        let phase = |workload: &str, wa| Figures {
            engine: "lsm".to_owned(),
            workload: workload.to_owned(),
            ops: 12_345,
            write_amplification: wa,
            ..Figures::default()
        };
        let report = Report {
            phases: vec![phase("fillrandom", Some(3.147)), phase("readrandom", None)],
            ..Report::default()
        };
        let text = table(&report);
        assert!(!text.contains("get µs"), "{text}");
        let line = text.lines().find(|line| line.starts_with("write amplification")).unwrap();
        assert!(line.contains("3.15") && line.ends_with('–'), "{text}");
        let ends: Vec<_> = text.lines().map(|line| line.chars().count()).collect();
        assert!(ends.iter().all(|end| *end == ends[0]), "{text}");
    }

    #[test]
    fn warning_of_a_peer_is_printed() {
        let mut peer = Report::default();
        peer.total.engine = "rocksdb".to_owned();
        peer.settings.insert("warning".to_owned(), "assertions are on".to_owned());
        let report = Report { peer: Some(Box::new(peer)), ..Report::default() };
        assert!(table(&report).ends_with("rocksdb warns: assertions are on\n"));
    }

    #[test]
    fn bytes_have_binary_units() {
        assert_eq!(human(1023), "1023 B");
        assert_eq!(human(1536), "1.5 KiB");
        assert_eq!(human(5 << 40), "5.0 TiB");
    }
}
