//! Progress bars for long operations: on standard error, and only if it is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar over `total` bytes.
pub(crate) fn bytes(doing: &'static str, total: u64) -> ProgressBar {
    bar(doing, total, "{msg:>10} [{bar:40}] {bytes}/{total_bytes} {bytes_per_sec} {eta} left")
}

/// A bar over `total` items.
pub(crate) fn count(doing: &'static str, total: u64) -> ProgressBar {
    bar(doing, total, "{msg:>10} [{bar:40}] {human_pos}/{human_len} {per_sec} {eta} left")
}

/// A spinner for work of unknown length.
pub(crate) fn spinner(doing: &'static str) -> ProgressBar {
    bar(doing, 0, "{msg:>10} {spinner} {human_pos} in {elapsed}, {per_sec}")
}

fn bar(doing: &'static str, total: u64, template: &str) -> ProgressBar {
    // `stderr` draws nothing when standard error is no terminal.
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(doing);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Progress bars of successive workloads, one bar per workload.
#[derive(Default)]
pub(crate) struct WorkloadBars {
    current: Option<(String, ProgressBar)>,
}

impl WorkloadBars {
    pub(crate) fn update(&mut self, workload: &str, done: u64, total: u64) {
        if self.current.as_ref().is_none_or(|(name, bar)| {
            // A repeated workload gets a new bar.
            name != workload || done < bar.position()
        }) {
            self.finish();
            let bar = count("", total);
            bar.set_message(workload.to_owned());
            self.current = Some((workload.to_owned(), bar));
        }
        if let Some((_, bar)) = &self.current {
            bar.set_position(done);
        }
    }

    pub(crate) fn finish(&mut self) {
        if let Some((_, bar)) = self.current.take() {
            bar.finish_and_clear();
        }
    }
}
