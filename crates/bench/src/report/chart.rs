//! A report as a chart: throughput over time, one line per phase and store.
//!
//! Invariant: every line starts at the start of its phase, so that the lines of compared stores
//! overlap.

use super::{Figures, Report};
use crate::plot::{Line, Lines, Plot};

/// The throughput of every phase over time. A peer's lines are dashed, and ours are folded to its
/// slice length, so that both are equally smooth.
pub fn throughput_chart(report: &Report) -> Plot {
    let peers = || report.peer.iter().flat_map(|peer| &peer.phases);
    let slices = peers().filter_map(|figures| Some(figures.timeline.as_ref()?.slice_seconds));
    let slice_seconds = slices.fold(0.0, f64::max);
    let line = |figures: &Figures, is_reference| {
        let timeline = figures.timeline.as_ref()?;
        let name = format!("{} {}", figures.engine, figures.workload);
        Some(Line { name, points: timeline.folded(slice_seconds).points(), is_reference })
    };
    let ours = report.phases.iter().filter_map(|figures| line(figures, false));
    Plot::Lines(Lines {
        title: format!("Throughput of {} over {} keys", report.total.workload, report.total.keys),
        x: "time (s)".to_owned(),
        y: "operations/s".to_owned(),
        series: ours.chain(peers().filter_map(|figures| line(figures, true))).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::Timeline;
    use super::*;

    #[test]
    fn every_phase_of_both_stores_is_a_line() {
        let phase = |engine: &str, timeline| Figures {
            engine: engine.to_owned(),
            workload: "fillrandom".to_owned(),
            timeline,
            ..Figures::default()
        };
        let timeline = Some(Timeline { slice_seconds: 1.0, ops_per_second: vec![5.0, 6.0] });
        let peer = Report { phases: vec![phase("rocksdb", timeline.clone())], ..Report::default() };
        let report = Report {
            phases: vec![phase("lsm", timeline), phase("lsm", None)],
            peer: Some(Box::new(peer)),
            ..Report::default()
        };
        let Plot::Lines(lines) = throughput_chart(&report) else { panic!("no lines") };
        let names: Vec<_> = lines.series.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["lsm fillrandom", "rocksdb fillrandom"]);
        assert_eq!(lines.series[0].points, [(0.5, 5.0), (1.5, 6.0)]);
        assert_eq!(lines.series[0].points, lines.series[1].points);
        assert!(!lines.series[0].is_reference && lines.series[1].is_reference);
    }
}
