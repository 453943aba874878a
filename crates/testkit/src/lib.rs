//! The conformance kit that every engine must pass.
//!
//! An engine implements [`EngineUnderTest`] and runs the whole kit with one line:
//!
//! ```ignore
//! siltstone_testkit::conformance!(LsmUnderTest);
//! ```
//!
//! An engine whose files can be encrypted runs `conformance!(encrypted …)`, too, in a module of its
//! own. An engine with repair adds `conformance!(repairs …)`, one with compaction filters
//! `conformance!(compaction_filters …)`. An engine in memory runs
//! `conformance!(in_memory …)` instead, the checks that need no disk; it must be empty at every
//! open.
//!
//! | module | contents |
//! | --- | --- |
//! | [`engine_under_test`] | the engine under test: how to open it, its option sets |
//! | `encrypted` | an engine over encrypted files (feature `encryption`) |
//! | [`scale`] | the amount of testing, from environment variables |
//! | [`oracle`] | the expected results |
//! | [`reference`](mod@reference) | a small complete engine with optional bugs: the kit's own test |
//! | [`history`] | random histories as data; [`keys`] and values that collide |
//! | [`session`] | engine and oracle side by side; [`checked_cursor`] for cursors |
//! | [`histories`](mod@histories) | check: every result of random histories; failing ones are [`shrink`](mod@shrink)ed |
//! | [`shared_prefixes`](mod@shared_prefixes) | check: many keys with shared prefixes, and cursors among concurrent inserts |
//! | [`metamorphic`](mod@metamorphic) | check: all option sets give the same results |
//! | [`power_cuts`](mod@power_cuts) | check: power cuts, also during recovery, and process crashes |
//! | [`unrelated_files`](mod@unrelated_files) | check: unrelated files in a table's directory |
//! | [`simulated_crash`] | check: a process crash, and a power cut while the next process opens the table |
//! | [`crashes_during_open`](mod@crashes_during_open) | check: repeated crashes during open |
//! | [`kill9`](mod@kill9) | check: `kill -9` of a writing process, on a real disk |
//! | [`damage`](mod@damage) | check: flipped bytes, zeroed sectors, truncated, extended, misplaced, swapped, old, missing files |
//! | [`valid_checksum_corruption`](mod@valid_checksum_corruption) | check: changed bytes under valid checksums |
//! | [`repairs`](mod@repairs) | check: repair of damaged stores; every row is there or reported lost |
//! | [`faults`](mod@faults) | check: requests of each kind fail, one per run |
//! | [`disk_full`](mod@disk_full) | check: a full disk at any point |
//! | [`refused_writes`](mod@refused_writes) | check: a refused write never appears after a reopen |
//! | [`late_sync_errors`](mod@late_sync_errors) | check: writes between the failure of a sync and its report |
//! | [`linear`] | check: single operations are linearizable |
//! | [`serial`] | serializability of transactions: histories, their graph, random ones |
//! | [`concurrent`] | check: batches, snapshots and cursors among threads |
//! | [`few_open_files`](mod@few_open_files) | check: histories and threads on a disk, with two open files |
//! | [`checkpoints`] | check: checkpoints among concurrent writers |
//! | [`clears`] | check: clears of all keys among concurrent writers and checkpoints |
//! | [`compaction_filters`](mod@compaction_filters) | check: filters drop obsolete rows, and nothing else |
//! | [`paged_scans`](mod@paged_scans) | check: scans in pages, with a new cursor per page |
//! | [`limits`](mod@limits) | check: the edges of the contract |
//! | [`renamed_options`] | for engines' own tests: old names of options |
//! | [`c_library`] | for bindings' tests: builds a library for C |
//! | [`hooked`] | for engines' own tests: another call, or an error, at a certain request |
//! | [`trace`], [`sink`], [`stop_guard`], [`test_rng`] | helpers |
//!
//! Every check is a function of an engine under test and a [`Scale`]; it returns what it did or
//! what is wrong.

#[cfg(unix)]
pub mod c_library;
mod check;
pub mod checked_cursor;
pub mod checkpoints;
pub mod clears;
pub mod compaction_filters;
pub mod concurrent;
pub mod crashes_during_open;
pub mod damage;
pub mod disk_full;
#[cfg(feature = "encryption")]
pub mod encrypted;
pub mod engine_under_test;
pub mod faults;
pub mod few_open_files;
pub mod histories;
pub mod history;
pub mod hooked;
pub mod keys;
pub mod kill9;
pub mod late_sync_errors;
pub mod limits;
pub mod linear;
pub mod metamorphic;
pub mod oracle;
pub mod paged_scans;
pub mod power_cuts;
pub mod reference;
pub mod refused_writes;
pub mod renamed_options;
pub mod repairs;
pub mod scale;
pub mod serial;
pub mod session;
pub mod shared_prefixes;
pub mod shrink;
pub mod simulated_crash;
pub mod sink;
pub mod stop_guard;
pub mod test_rng;
pub mod trace;
pub mod unrelated_files;
pub mod valid_checksum_corruption;

pub use check::{Check, CheckResult};
pub use checked_cursor::{CheckError, CheckedCursor, Move};
pub use engine_under_test::{EngineUnderTest, ReferenceUnderTest};
pub use hooked::HookedVfs;
pub use oracle::{ExpectedEntry, Oracle};
pub use renamed_options::check_renamed_options;
pub use scale::Scale;
pub use session::Session;
pub use test_rng::TestRng;

/// Runs a check as a test: the scale comes from the environment, the figures go to standard output
/// (`cargo test … -- --nocapture` shows them).
///
/// # Panics
/// If the check fails.
pub fn run(name: &str, check: Check, tested: &dyn EngineUnderTest) {
    run_scaled(name, check, tested, &Scale::from_env());
}

/// The same with another scale.
///
/// # Panics
/// If the check fails.
#[expect(clippy::print_stdout, reason = "tests report through standard output")]
pub fn run_scaled(name: &str, check: Check, tested: &dyn EngineUnderTest, scale: &Scale) {
    let began = std::time::Instant::now();
    match check(tested, scale) {
        Ok(figures) => {
            let seconds = began.elapsed().as_secs_f64();
            println!("{} {name}: {figures} ({seconds:.1} s)", tested.name());
        }
        Err(wrong) => panic!("{name}: {wrong}"),
    }
}

/// Makes a test of every check for an engine; the argument is an [`EngineUnderTest`].
#[macro_export]
macro_rules! conformance {
    // For an engine in memory, without a disk that could fail.
    (in_memory $tested:expr) => {
        $crate::conformance! { @tests $crate::run, $tested;
            histories $crate::histories::histories,
            metamorphic $crate::metamorphic::metamorphic,
            linearizable $crate::linear::linearizable,
            threads $crate::concurrent::threads,
            limits $crate::limits::limits,
        }
    };
    // For an engine that can repair its files.
    (repairs $tested:expr) => {
        $crate::conformance! { @tests $crate::run, $tested;
            repairs $crate::repairs::repairs,
        }
    };
    // For an engine with compaction filters.
    (compaction_filters $tested:expr) => {
        $crate::conformance! { @tests $crate::run, $tested;
            compaction_filters $crate::compaction_filters::compaction_filters,
        }
    };
    // For an engine whose files can be encrypted: an `Encrypted`. Without
    // `valid_checksum_corruption`: nobody can compute a tag without the key.
    (encrypted $tested:expr) => {
        $crate::conformance! { @files $crate::encrypted::run, $tested;
            repairs $crate::repairs::repairs,
        }
    };
    ($tested:expr) => {
        $crate::conformance! { @files $crate::run, $tested;
            shared_prefixes $crate::shared_prefixes::shared_prefixes,
            valid_checksum_corruption $crate::valid_checksum_corruption::valid_checksum_corruption,
            limits $crate::limits::limits,
            paged_scans $crate::paged_scans::paged_scans,
        }
    };
    // What every engine with files runs, and more.
    (@files $run:path, $tested:expr; $($name:ident $check:path,)*) => {
        $crate::conformance! { @tests $run, $tested;
            histories $crate::histories::histories,
            metamorphic $crate::metamorphic::metamorphic,
            power_cuts $crate::power_cuts::power_cuts,
            simulated_crashes $crate::simulated_crash::simulated_crashes,
            crashes_during_open $crate::crashes_during_open::crashes_during_open,
            kill9 $crate::kill9::kill9,
            unrelated_files $crate::unrelated_files::unrelated_files,
            damage_when_closed $crate::damage::damage_when_closed,
            damage_when_not_closed $crate::damage::damage_when_not_closed,
            faults $crate::faults::faults,
            disk_full $crate::disk_full::disk_full,
            refused_writes $crate::refused_writes::refused_writes,
            late_sync_errors $crate::late_sync_errors::late_sync_errors,
            linearizable $crate::linear::linearizable,
            threads $crate::concurrent::threads,
            few_open_files $crate::few_open_files::few_open_files,
            concurrent_checkpoints $crate::checkpoints::concurrent_checkpoints,
            concurrent_clears $crate::clears::concurrent_clears,
            $($name $check,)*
        }

        #[test]
        fn kill9_child() {
            $crate::kill9::child(&$tested);
        }
    };
    (@tests $run:path, $tested:expr; $($name:ident $check:path,)*) => {
        $(#[test]
        fn $name() {
            $run(stringify!($name), $check, &$tested);
        })*
    };
}
