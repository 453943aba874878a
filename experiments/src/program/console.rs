//! Progress on standard error, and removal of temporary stores when a signal ends the program.

use std::io::Write;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::Failure;

/// A progress bar, drawn only if standard error is a terminal.
pub(crate) fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    let template = "{msg:>10} [{bar:40}] {human_pos}/{human_len} {elapsed}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Removes the stores of running measurements and ends the program when SIGINT or SIGTERM arrives.
pub(crate) fn clean_up_on_signal() -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|error| Failure::Store(format!("cannot listen for signals: {error}")))?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            let removed = siltstone_bench::engines::remove_unfinished();
            let mut err = std::io::stderr().lock();
            let _ = writeln!(err, "siltstone-experiments: interrupted");
            for path in removed {
                let _ = writeln!(err, "removed {}", path.display());
            }
            // Immediately: other threads still use the removed files.
            signal_hook::low_level::exit(128 + signal);
        }
    });
    Ok(())
}
