//! Histories and threads on a disk that keeps two files open.
//!
//! Checked: every result, although the files of the engine are closed between requests and opened
//! again, and removed while snapshots and cursors read them.

use std::sync::Arc;

use siltstone_vfs::{Disk, DiskOptions, Vfs};

use crate::concurrent::threads_on;
use crate::histories::run_on;
use crate::history::{self, HistoryShape};
use crate::kill9::Scratch;
use crate::{CheckResult, EngineUnderTest, Scale};

const OPTIONS: DiskOptions = DiskOptions { direct: false, map_appends: true, max_open_files: 2 };

/// Runs a tenth of the random histories, and a third of the rounds of
/// [`threads`](crate::concurrent::threads).
///
/// # Errors
/// What is wrong, and how to repeat it.
pub fn few_open_files(tested: &dyn EngineUnderTest, scale: &Scale) -> CheckResult {
    let scratch = Scratch::new(&format!("few-{}", tested.name())).map_err(|e| e.to_string())?;
    let mut disks: Vec<Arc<Disk>> = Vec::new();
    let mut make = || -> Result<Arc<dyn Vfs>, String> {
        let disk = Disk::create(scratch.0.join(disks.len().to_string()));
        disks.push(Arc::new(disk.map_err(|error| error.to_string())?.with_options(OPTIONS)));
        Ok(disks[disks.len() - 1].clone())
    };
    let count = (scale.histories / 10).max(u64::from(tested.option_set_count()));
    for case in scale.cases(count, tested.option_set_count()) {
        let history = history::draw(case.seed, &HistoryShape::EVERYTHING);
        run_on(tested, case, &history, make()?).map_err(|failure| {
            format!("{}, step {}: {}\n{case}", tested.name(), failure.at, failure.what)
        })?;
    }
    let threads =
        threads_on(tested, &Scale { rounds: scale.rounds / 3, ..scale.clone() }, &mut make)?;
    let (mut evictions, mut reopens) = (0, 0);
    for counts in disks.iter().filter_map(|disk| disk.open_files()) {
        (evictions, reopens) = (evictions + counts.evictions, reopens + counts.reopens);
    }
    // A table with a file or two opens nothing again.
    Ok(format!("{count} histories, {threads}, {evictions} files closed, {reopens} opened again"))
}
