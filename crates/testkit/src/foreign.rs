//! Files of others in a table's directory, under names that are nearly its own.
//!
//! ```text
//!   000012.log                  ours
//!   18446744073709551615.log    nobody's: there is no number after it
//!   18446744073709551616.log    no number at all
//! ```
//!
//! Promise checked: an engine opens, works, is sound and is repaired beside them, and neither takes them for
//! its own nor removes them.
//!
//! Source: ours.

use std::collections::BTreeSet;
use std::sync::Arc;

use siltstone_engine::{Durability, ManualClock, Purpose, WriteBatch};
use siltstone_runtime::Env;
use siltstone_vfs::{Mode, Ram, Vfs};

use crate::scale::Case;
use crate::{Scale, Subject, Verdict, Wrong};

const NOT_OURS: &[u8] = b"not ours";

/// Puts such files beside a table's, and works with it.
///
/// # Errors
/// What failed, or what became of them.
pub fn files_of_others(subject: &dyn Subject, scale: &Scale) -> Verdict {
    let mut files = 0;
    for variant in scale.variants(subject.variants()) {
        let case = Case { seed: scale.seed.unwrap_or(0), variant };
        files += beside(subject, case)
            .map_err(|wrong| format!("{}: {wrong}\n{case}", subject.name()))?;
    }
    Ok(format!("{files} files of others"))
}

fn beside(subject: &dyn Subject, case: Case) -> Result<usize, Wrong> {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let work = |round: u8| -> Result<(), Wrong> {
        let env = Env::replayable(Arc::new(ManualClock::at(0)), case.seed);
        let engine = subject.open(vfs.clone(), env, case.variant)?;
        for key in 0..100u8 {
            let mut batch = WriteBatch::new();
            batch.put(&[key], &[round; 100]);
            engine.write(&batch, Durability::Synced)?;
        }
        engine.flush()?;
        for key in 0..100u8 {
            let value = engine.get(&[key])?.map(|entry| entry.value.to_vec());
            if value.as_deref() != Some(&[round; 100]) {
                return Err(Wrong::Answer(format!("key {key} is {value:?} in round {round}")));
            }
        }
        let report = engine.verify(&mut |_, _| ())?;
        if !report.damage.is_empty() {
            return Err(Wrong::Answer(format!("it is not sound: {:?}", report.damage)));
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
        vfs.create(name)?.write_at(0, NOT_OURS, Purpose::Maintenance)?;
    }
    work(2)?;
    // So that a repair has something to do, where there is a manifest, and no part elsewhere that it is not told of.
    if vfs.exists("CURRENT")? && vfs.subdirectories()?.is_empty() {
        vfs.remove("CURRENT")?;
    }
    subject.repair(&vfs, case.variant)?;
    work(3)?;
    for name in &others {
        let file = vfs.open(name, Mode::Read)?;
        let mut bytes = vec![0; NOT_OURS.len()];
        file.read_at(0, &mut bytes, Purpose::Maintenance)?;
        if bytes != NOT_OURS || file.len()? != NOT_OURS.len() as u64 {
            return Err(Wrong::Answer(format!("{name} was changed")));
        }
    }
    Ok(others.len())
}
