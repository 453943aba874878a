//! The conformance kit that every engine must pass.
//!
//! An engine describes itself by a [`Subject`] and runs the whole kit with one line:
//!
//! ```ignore
//! siltstone_testkit::conformance!(LsmSubject);
//! ```
//!
//! An engine that can repair its files says so with a second line, `conformance!(repairs …)`.
//!
//! An engine that is not durable says so by its capabilities, and runs `conformance!(in_memory …)`:
//! the checks that need no medium. Whenever it is opened it must be empty.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`subject`] | what an engine tells about itself: how it is opened, its option sets |
//! | [`scale`] | how much to test, by environment variables |
//! | [`oracle`] | what the answers should be |
//! | [`reference`](mod@reference) | a small complete engine, with bugs on request: the kit's own test |
//! | [`history`] | random histories as data; [`keys`] and values that get in each other's way |
//! | [`session`] | engine and oracle side by side; [`walk`] for cursors |
//! | [`histories`](mod@histories) | check: every answer of random histories; [`shrink`](mod@shrink)s what fails |
//! | [`crowd`] | check: many keys that begin alike, and cursors that stand still while others come between |
//! | [`metamorphic`](mod@metamorphic) | check: all option sets give one answer |
//! | [`power`] | check: power cuts, also while recovering, and deaths of the process |
//! | [`foreign`] | check: files of others beside a table's |
//! | [`deaths`] | check: a process dies, and power goes off while the next one opens the table |
//! | [`kill`] | check: a process killed while it writes, on the machine's own disk |
//! | [`damage`](mod@damage) | check: flipped bytes, zeroed sectors, what is cut off, behind the end, misplaced, swapped, old, missing |
//! | [`repairs`](mod@repairs) | check: repair of damaged stores; every row is there or reported lost |
//! | [`faults`] | check: each request failing once |
//! | [`full`] | check: a full medium at any point |
//! | [`refused`] | check: what was refused stays away when the table is opened again |
//! | [`linear`] | check: single operations are linearizable |
//! | [`serial`] | are transactions serializable: histories, their graph, random ones |
//! | [`concurrent`] | check: batches, snapshots and cursors among threads |
//! | [`copies`] | check: checkpoints among threads that write |
//! | [`pages`] | check: walks in pages, by cursors that go on where others stood |
//! | [`limits`](mod@limits) | check: the edges of the contract |
//! | [`trace`], [`sink`], [`dice`] | helpers |
//!
//! Every check is a function of a subject and a [`Scale`], and answers what it did or what is wrong.

pub mod concurrent;
pub mod copies;
pub mod crashes_in_openings;
pub mod crowd;
pub mod damage;
pub mod deaths;
pub mod dice;
pub mod ending;
pub mod faults;
pub mod foreign;
pub mod full;
pub mod histories;
pub mod history;
pub mod keys;
pub mod kill;
pub mod limits;
pub mod linear;
pub mod metamorphic;
pub mod oracle;
pub mod pages;
pub mod power;
pub mod reference;
pub mod refused;
pub mod repairs;
pub mod resealed;
pub mod scale;
pub mod serial;
pub mod session;
pub mod shrink;
pub mod sink;
pub mod subject;
pub mod trace;
pub mod walk;

pub use dice::Dice;
pub use oracle::{Expected, Oracle};
pub use scale::Scale;
pub use session::Session;
pub use subject::{ReferenceSubject, Subject};
pub use walk::{Move, Walker, Wrong};

/// What a check did, in figures; or what is wrong, and how to repeat it.
pub type Verdict = Result<String, String>;

/// A check of the kit.
pub type Check = fn(&dyn Subject, &Scale) -> Verdict;

/// Runs a check as a test: the scale comes from the environment, the figures go to standard output
/// (`cargo test … -- --nocapture` shows them).
///
/// # Panics
/// If the check fails.
#[expect(clippy::print_stdout, reason = "tests are heard through standard output")]
pub fn run(name: &str, check: Check, subject: &dyn Subject) {
    let began = std::time::Instant::now();
    match check(subject, &Scale::from_env()) {
        Ok(figures) => {
            let seconds = began.elapsed().as_secs_f64();
            println!("{} {name}: {figures} ({seconds:.1} s)", subject.name());
        }
        Err(wrong) => panic!("{name}: {wrong}"),
    }
}

/// Makes a test of every check for an engine; the argument is an expression for its [`Subject`].
#[macro_export]
macro_rules! conformance {
    // For an engine in memory, which has no medium that could fail.
    (in_memory $subject:expr) => {
        $crate::conformance! { @tests $subject;
            histories $crate::histories::histories,
            metamorphic $crate::metamorphic::metamorphic,
            linearizable $crate::linear::linearizable,
            threads $crate::concurrent::threads,
            limits $crate::limits::limits,
        }
    };
    // For an engine that can repair its files.
    (repairs $subject:expr) => {
        $crate::conformance! { @tests $subject;
            repairs $crate::repairs::repairs,
        }
    };
    ($subject:expr) => {
        $crate::conformance! { @tests $subject;
            histories $crate::histories::histories,
            metamorphic $crate::metamorphic::metamorphic,
            crowds $crate::crowd::crowds,
            power_cuts $crate::power::power_cuts,
            deaths_before_openings $crate::deaths::deaths_before_openings,
            crashes_in_openings $crate::crashes_in_openings::crashes_in_openings,
            killed $crate::kill::killed,
            files_of_others $crate::foreign::files_of_others,
            damage_when_closed $crate::damage::damage_when_closed,
            damage_when_not_closed $crate::damage::damage_when_not_closed,
            resealed $crate::resealed::resealed,
            faults $crate::faults::faults,
            full_medium $crate::full::full_medium,
            refused_writes $crate::refused::refused_writes,
            linearizable $crate::linear::linearizable,
            threads $crate::concurrent::threads,
            copies_among_writers $crate::copies::copies_among_writers,
            limits $crate::limits::limits,
            walks_in_pages $crate::pages::walks_in_pages,
        }

        #[test]
        fn lives_until_it_is_killed() {
            $crate::kill::child(&$subject);
        }
    };
    (@tests $subject:expr; $($name:ident $check:path,)*) => {
        $(#[test]
        fn $name() {
            $crate::run(stringify!($name), $check, &$subject);
        })*
    };
}
