//! The load of the URL shortener: it times each part, and checks every result.
//!
//! ```text
//!   shorten      each URL once: a code for each
//!   follow       clicks, in batches; a few of them on codes that do not exist
//!   log          the newest clicks of each link; the counted clicks and those in the log
//!   duplicates   each URL again: the same code; the index agrees with the links
//!   reopen       the store is closed and opened again: links and counts are there
//! ```
//!
//! The programs on other stores in `experiments/library-programs` run the same load, so that lines
//! and speed can be compared. It is the same in each run: nothing is random but a fixed sequence.
//!
//! `url_shortener [DIRECTORY LINKS CLICKS]` prints the seconds of each part.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::time::Instant;

pub(crate) type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// Clicks that are recorded together.
const BATCH: usize = 1000;
/// The newest clicks of a link that are shown.
const SHOWN: usize = 10;
/// One click of this number is on a code that does not exist.
const MISSES: u64 = 50;

/// A click on a link.
pub(crate) struct Click {
    pub(crate) code: String,
    /// Microseconds; no two clicks have the same.
    pub(crate) time: u64,
    pub(crate) referrer: &'static str,
}

/// Clicks per link.
pub(crate) type Counts = BTreeMap<String, u64>;

/// The store of a URL shortener. A write that has returned survives a power cut.
pub(crate) trait Shortener: Sized {
    /// Opens or creates the store in an existing directory.
    fn open(directory: &Path) -> Result<Self>;
    /// The code of a URL: the one it has, or a new one. No two URLs have the same code.
    fn shorten(&self, url: &str) -> Result<String>;
    /// Appends clicks to the log, and counts them by link, all or none. Returns how many are on
    /// links; others are left out.
    fn follow(&self, clicks: &[Click]) -> Result<usize>;
    /// The times and referrers of the last clicks on a link, newest first.
    fn newest(&self, code: &str, limit: usize) -> Result<Vec<(u64, String)>>;
    /// The clicks per link as counted, and those in the log, as of one moment.
    fn counts(&self) -> Result<(Counts, Counts)>;
    /// The number of links. Fails unless each URL has one link and each link one URL.
    fn check_index(&self) -> Result<usize>;
}

/// The first code for `url` that is free.
pub(crate) fn free_code<E>(
    url: &str,
    mut is_taken: impl FnMut(&str) -> Result<bool, E>,
) -> Result<String, E> {
    for attempt in 0.. {
        let code = code(url, attempt);
        if !is_taken(&code)? {
            return Ok(code);
        }
    }
    unreachable!("attempts do not end")
}

/// Five digits of base 32 that depend on the URL: with many URLs some collide.
fn code(url: &str, attempt: u64) -> String {
    let fnv = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let hash = url.bytes().fold(0xcbf2_9ce4_8422_2325 ^ attempt, fnv);
    let digit = |at| b"0123456789abcdefghjkmnpqrstvwxyz"[(hash >> (12 + 5 * at)) as usize % 32];
    (0..5).map(|at| char::from(digit(at))).collect()
}

/// Runs the load as the arguments of the process demand; without any, a small one.
pub(crate) fn main<S: Shortener>() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [directory, links, clicks] => run::<S>(directory.as_ref(), links.parse()?, clicks.parse()?),
        [] => run_in_scratch::<S>(),
        _ => Err("usage: url_shortener [DIRECTORY LINKS CLICKS]".into()),
    }
}

fn run_in_scratch<S: Shortener>() -> Result<()> {
    let name = format!("url-shortener-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    std::fs::create_dir(&directory)?;
    let outcome = run::<S>(&directory, 500, 5_000);
    std::fs::remove_dir_all(directory)?;
    outcome
}

/// A check of a result.
fn check(is_right: bool, what: &str) -> Result<()> {
    if is_right { Ok(()) } else { Err(what.into()) }
}

fn run<S: Shortener>(directory: &Path, links: u64, clicks: u64) -> Result<()> {
    let mut start = Instant::now();
    let mut end_part = |name: &str| {
        println!("{name} {:.4}", start.elapsed().as_secs_f64());
        start = Instant::now();
    };
    let store = S::open(directory)?;
    let urls: Vec<_> = (0..links).map(|n| format!("https://example.org/articles/{n:08}")).collect();
    let codes = urls.iter().map(|url| store.shorten(url)).collect::<Result<Vec<_>>>()?;
    end_part("shorten");

    let mut expected = Counts::new();
    let mut newest: BTreeMap<&str, Vec<(u64, String)>> = BTreeMap::new();
    let clicks: Vec<_> = (0..clicks).map(|time| click(&codes, time)).collect();
    for batch in clicks.chunks(BATCH) {
        let followed = store.follow(batch)?;
        let known = batch.iter().filter(|click| click.code != MISSING);
        check(followed == known.count(), "a click on a link was left out")?;
    }
    for click in clicks.iter().filter(|click| click.code != MISSING) {
        *expected.entry(click.code.clone()).or_default() += 1;
        newest.entry(&click.code).or_default().push((click.time, click.referrer.to_owned()));
    }
    end_part("follow");

    for (code, clicks) in &newest {
        let shown: Vec<_> = clicks.iter().rev().take(SHOWN).cloned().collect();
        check(store.newest(code, SHOWN)? == shown, "the newest clicks of a link are others")?;
    }
    let (counted, logged) = store.counts()?;
    check(counted == expected, "the counts are wrong")?;
    check(logged == expected, "the log is wrong")?;
    end_part("log");

    for (url, code) in urls.iter().zip(&codes) {
        check(store.shorten(url)? == *code, "a URL has a second code")?;
    }
    check(store.check_index()? == urls.len(), "links are missing")?;
    end_part("duplicates");

    drop(store);
    let store = S::open(directory)?;
    check(store.check_index()? == urls.len(), "links are missing after a reopening")?;
    check(store.counts()? == (counted, logged), "clicks are missing after a reopening")?;
    end_part("reopen");
    Ok(())
}

/// A code that no link has.
const MISSING: &str = "-----";

/// The click of a time: some links are clicked far more often than others.
fn click(codes: &[String], time: u64) -> Click {
    let random = (time + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let random = (random ^ (random >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32;
    let share = random as f64 / (1u64 << 32) as f64;
    let link = (share * share * share * codes.len() as f64) as usize;
    let code = if random.is_multiple_of(MISSES) { MISSING } else { &codes[link] };
    let referrer = ["", "https://search.example/", "https://news.example/front"][link % 3];
    Click { code: code.to_owned(), time, referrer }
}

#[test]
fn program_checks_its_results() {
    run_in_scratch::<crate::Store>().unwrap();
}
