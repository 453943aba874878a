//! Unrelated files in a table's directory, with names like those of the table.
//!
//! ```text
//!   000012.log                  the table's
//!   18446744073709551615.log    unrelated: there is no next number
//!   18446744073709551616.log    unrelated: not a 64-bit number
//! ```
//!
//! Checked: an engine opens, works, verifies and is repaired beside them, and neither reads
//! nor removes them.

use std::collections::BTreeSet;
use std::sync::Arc;

use siltstone_engine::{Durability, ManualClock, Purpose, WriteBatch};
use siltstone_runtime::Env;
use siltstone_vfs::{Mode, Ram, Vfs};

use crate::scale::Case;
use crate::{CheckError, CheckResult, EngineUnderTest, Scale};

const UNRELATED: &[u8] = b"not ours";

/// Adds such files to a table's directory, and works with the table.
///
/// # Errors
/// What failed, or which file was changed.
pub fn unrelated_files(tested: &dyn EngineUnderTest, scale: &Scale) -> CheckResult {
    let mut files = 0;
    for option_set in scale.option_sets(tested.option_set_count()) {
        let case = Case { seed: scale.seed.unwrap_or(0), option_set };
        files += work_beside(tested, case)
            .map_err(|wrong| format!("{}: {wrong}\n{case}", tested.name()))?;
    }
    Ok(format!("{files} unrelated files"))
}

fn work_beside(tested: &dyn EngineUnderTest, case: Case) -> Result<usize, CheckError> {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let work = |round: u8| -> Result<(), CheckError> {
        let env = Env::replayable(Arc::new(ManualClock::at(0)), case.seed);
        let engine = tested.open(vfs.clone(), env, case.option_set)?;
        for key in 0..100u8 {
            let mut batch = WriteBatch::new();
            batch.put(&[key], &[round; 100]);
            engine.write(&batch, Durability::Synced)?;
        }
        engine.flush()?;
        for key in 0..100u8 {
            let value = engine.get(&[key])?.map(|entry| entry.value.to_vec());
            if value.as_deref() != Some(&[round; 100]) {
                return Err(CheckError::Mismatch(format!(
                    "key {key} is {value:?} in round {round}"
                )));
            }
        }
        let report = engine.verify(&mut |_, _| ())?;
        if !report.damage.is_empty() {
            return Err(CheckError::Mismatch(format!("verify found damage: {:?}", report.damage)));
        }
        Ok(())
    };
    work(1)?;
    let own = vfs.list()?;
    let extensions: BTreeSet<_> = own.iter().filter_map(|name| name.split_once('.')).collect();
    let extensions: BTreeSet<_> = extensions.into_iter().map(|(_, extension)| extension).collect();
    let others: Vec<_> = ["18446744073709551615", "18446744073709551616"]
        .iter()
        .flat_map(|digits| extensions.iter().map(move |extension| format!("{digits}.{extension}")))
        .chain(["18446744073709551615", "notes.txt"].map(str::to_owned))
        .collect();
    for name in &others {
        vfs.create(name)?.write_at(0, UNRELATED, Purpose::Maintenance)?;
    }
    work(2)?;
    // Gives the repair something to do, if there is a manifest and no part in another directory.
    if vfs.exists("CURRENT")? && vfs.subdirectories()?.is_empty() {
        vfs.remove("CURRENT")?;
    }
    tested.repair(&vfs, case.option_set)?;
    work(3)?;
    for name in &others {
        let file = vfs.open(name, Mode::Read)?;
        let mut bytes = vec![0; UNRELATED.len()];
        file.read_at(0, &mut bytes, Purpose::Maintenance)?;
        if bytes != UNRELATED || file.len()? != UNRELATED.len() as u64 {
            return Err(CheckError::Mismatch(format!("{name} was changed")));
        }
    }
    Ok(others.len())
}
