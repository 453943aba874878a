//! Progress bars for long work: on standard error, and only when that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar over `total` bytes.
pub(crate) fn bytes(doing: &'static str, total: u64) -> ProgressBar {
    bar(doing, total, "{msg:>10} [{bar:40}] {bytes}/{total_bytes} {bytes_per_sec} {eta} left")
}

/// A bar over `total` things.
pub(crate) fn count(doing: &'static str, total: u64) -> ProgressBar {
    bar(doing, total, "{msg:>10} [{bar:40}] {human_pos}/{human_len} {per_sec} {eta} left")
}

/// For work whose end is not known.
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

/// One progress bar after the other, a workload each.
#[derive(Default)]
pub(crate) struct Workloads {
    current: Option<(String, ProgressBar)>,
}

impl Workloads {
    pub(crate) fn update(&mut self, workload: &str, done: u64, total: u64) {
        if self.current.as_ref().is_none_or(|(name, bar)| {
            // The same workload may come twice in a row: its bar starts over.
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
