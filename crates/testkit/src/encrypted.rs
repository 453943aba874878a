//! An engine over encrypted files: the medium under the encryption loses power, fails, fills up and
//! is damaged, and the engine must keep the same promises.

use std::sync::Arc;

use siltstone_engine::{Capabilities, Engine, RepairReport, Result};
use siltstone_runtime::Env;
use siltstone_vfs::Vfs;
use siltstone_vfs::encrypted::{EncryptedVfs, KeyRing, MasterKey};

use crate::{Check, EngineUnderTest, Scale};

/// An engine whose files are encrypted, with some of its option sets.
pub struct Encrypted<E> {
    name: &'static str,
    engine: E,
    /// Indexes of option sets of the engine.
    option_sets: Vec<u32>,
    descriptions: Vec<&'static str>,
}

impl<E: EngineUnderTest> Encrypted<E> {
    /// The engine under a name of its own, with these of its option sets: the kit over plain files
    /// runs all of them.
    pub fn new(name: &'static str, engine: E, option_sets: &[u32]) -> Self {
        let descriptions =
            option_sets.iter().map(|&set| engine.option_sets()[set as usize]).collect();
        Encrypted { name, engine, option_sets: option_sets.to_vec(), descriptions }
    }
}

fn encrypted(vfs: Arc<dyn Vfs>) -> Arc<dyn Vfs> {
    let keys = KeyRing::new(MasterKey::new(&[7; 32]), Vec::new());
    Arc::new(EncryptedVfs::new(vfs, Arc::new(keys)))
}

impl<E: EngineUnderTest> EngineUnderTest for Encrypted<E> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn option_sets(&self) -> &[&'static str] {
        &self.descriptions
    }

    fn capabilities(&self) -> Capabilities {
        self.engine.capabilities()
    }

    fn open(&self, vfs: Arc<dyn Vfs>, env: Env, option_set: u32) -> Result<Box<dyn Engine>> {
        self.engine.open(encrypted(vfs), env, self.option_sets[option_set as usize])
    }

    fn view(&self, vfs: Arc<dyn Vfs>) -> Arc<dyn Vfs> {
        encrypted(self.engine.view(vfs))
    }

    fn is_whole_store(&self, path: &str) -> bool {
        self.engine.is_whole_store(path)
    }

    fn is_unrepairable(&self, path: &str, damage: &str) -> bool {
        self.engine.is_unrepairable(path, damage)
    }

    fn repair(&self, vfs: &Arc<dyn Vfs>, option_set: u32) -> Result<RepairReport> {
        self.engine.repair(&encrypted(vfs.clone()), self.option_sets[option_set as usize])
    }
}

/// Runs a check with a fifth of the kit's amounts, or with those of the environment.
///
/// # Panics
/// If the check fails.
pub fn run(name: &str, check: Check, tested: &dyn EngineUnderTest) {
    let scale = Scale::from_env_or(Scale {
        histories: 12,
        power_cuts: 80,
        refused_histories: 20,
        flips: 300,
        damaged_stores: 80,
        faults: 12,
        rounds: 6,
        kills: 4,
        ..Scale::default()
    });
    crate::run_scaled(name, check, tested, &scale);
}
