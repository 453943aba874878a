//! The runner: runs workloads against an engine and measures them.
//!
//! A [`Session`] is one open engine; each workload that runs in it is a phase:
//!
//! ```text
//! load if the store is empty and the workload needs it ─ a phase of its own
//! warm up ─ Stats ─ operations of T threads ─ until background work is idle ─ Stats
//!                   └────── seconds ──────┘   └────── settle_seconds ────┘
//! ```
//!
//! Invariant: the bytes that a phase's writes cause are counted in that phase, because it ends only
//! when background work is idle. The time for that is reported separately, so throughput is what
//! the threads observed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use siltstone_engine::{Engine, Error, Result, WriteBatch};

mod counts;
mod device_writes;
mod latency;
pub mod process;
mod settings;
mod source;
mod timeline;
mod worker;

pub use counts::{Counts, Identity, State};
pub use device_writes::DeviceWrites;
pub use latency::{Kind, Latencies};
use process::peak_rss_bytes;
pub use settings::Settings;
pub use timeline::Slices;

use crate::engines::{OpenEngine, Target};
use crate::generate::{Chooser, Draw, KeySpace, Mix, Operation, Rng, ValueSize, Values, stream};
use crate::report::{Figures, Growth, Report};
use crate::workload::{Choices, Requests, Start, Workload};
use source::{RandomSource, ReplaySource, Source};
use worker::{Pass, Schedule, Worker};

/// Interval of the progress callback.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Makes the popularity of keys independent of the order in which they are loaded.
const LOAD_SEED: u64 = 0x6c6f_6164;

/// Samples of write amplification per phase.
const GROWTH_SAMPLES: u64 = 50;

/// Progress of a phase.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// Name of the workload.
    pub workload: &'a str,
    /// Operations done, including warm-up.
    pub done: u64,
    /// Operations in total, including warm-up.
    pub total: u64,
}

/// A progress callback.
pub type OnProgress<'a> = &'a mut dyn FnMut(Progress<'_>);

/// A finished workload.
pub struct Phase {
    /// Name of the workload.
    pub workload: String,
    /// Whether it only loaded data for the next workload.
    pub is_load: bool,
    /// Differences of counters.
    pub counts: Counts,
    /// Latencies of its operations.
    pub latencies: Latencies,
    /// Throughput over time.
    pub slices: Slices,
    /// Sizes at its end.
    pub state: State,
    /// Write amplification during the phase.
    pub growth: Vec<Growth>,
}

/// An engine under measurement.
pub struct Session {
    opened: OpenEngine,
    settings: Settings,
    keys: KeySpace,
    population: AtomicU64,
    phases: Vec<Phase>,
}

/// Runs workloads on one store, one after the other.
///
/// # Errors
/// Settings or workloads that are invalid for this engine; errors of the engine.
pub fn bench(
    target: &Target,
    workloads: &[Workload],
    settings: &Settings,
    on_progress: OnProgress<'_>,
) -> Result<Report> {
    settings.check()?;
    let mut session = Session::new(target.open(settings.seed)?, settings.clone())?;
    for workload in workloads {
        session.check(workload)?;
    }
    for workload in workloads {
        session.run(workload, on_progress)?;
    }
    let mut report = session.report();
    let options = target.options.iter().map(|(k, v)| (format!("option.{k}"), v.clone()));
    report.settings.extend(options);
    report.settings.insert("media".to_owned(), target.storage.name().to_owned());
    report.settings.insert("background_threads".to_owned(), target.background_threads.to_string());
    if let (Some(path), true) = (&session.opened.path, target.keep) {
        report.settings.insert("dir".to_owned(), path.display().to_string());
    }
    session.opened.engine.close()?;
    Ok(report)
}

impl Session {
    /// A session over an open engine.
    ///
    /// # Errors
    /// [`Error::InvalidOptions`] for settings that are invalid for it.
    pub fn new(opened: OpenEngine, settings: Settings) -> Result<Self> {
        settings.check()?;
        check_value("value-size", settings.value.max(), &*opened.engine)?;
        let keys = KeySpace::new(settings.key_bytes, settings.keys)?;
        let population = AtomicU64::new(settings.keys);
        Ok(Session { opened, settings, keys, population, phases: Vec::new() })
    }

    /// The engine.
    pub fn engine(&self) -> &dyn Engine {
        &*self.opened.engine
    }

    /// The finished phases.
    pub fn phases(&self) -> &[Phase] {
        &self.phases
    }

    /// Checks that the engine can run a workload.
    ///
    /// # Errors
    /// [`Error::Unsupported`]; [`Error::InvalidOptions`] if the keys are too short for its inserts.
    pub fn check(&self, workload: &Workload) -> Result<()> {
        let engine = self.engine();
        if workload.needs_order() && !engine.capabilities().ordered {
            return Err(engine.unsupported("range scans"));
        }
        if let Requests::Replayed { trace, .. } = &workload.requests {
            check_value("trace", trace.largest_value(), engine)?;
        }
        if workload.inserts() {
            let most = self.settings.ops_of(workload).saturating_add(self.settings.warmup);
            KeySpace::new(self.settings.key_bytes, self.settings.keys.saturating_add(most))?;
        }
        Ok(())
    }

    /// Runs a workload; loads data first if the workload needs it and the store is empty.
    ///
    /// # Errors
    /// As [`check`](Session::check); errors of the engine.
    pub fn run(&mut self, workload: &Workload, on_progress: OnProgress<'_>) -> Result<()> {
        self.check(workload)?;
        let is_empty = match self.engine().stats().keys_estimate {
            Some(keys) => keys == 0,
            None => !self.engine().iter()?.first()?,
        };
        if let Some((load, ops)) = self.load_of(workload)?.filter(|_| is_empty) {
            self.phase(&load, ops, 0, None, true, on_progress)?;
        }
        let ops = self.settings.ops_of(workload);
        let (warmup, rate) = (self.settings.warmup, self.settings.rate);
        self.phase(workload, ops, warmup, rate, false, on_progress)
    }

    /// The workload that loads the initial data of `workload`, and its number of operations.
    fn load_of(&self, workload: &Workload) -> Result<Option<(Workload, u64)>> {
        let keys = self.settings.keys;
        let load = || Workload::named("load", &Choices::default());
        Ok(match (workload.start, &workload.requests) {
            (Start::Loaded, _) => Some((load()?, keys)),
            (Start::HalfLoaded, _) => Some((load()?, keys / 2)),
            (Start::Prelude, Requests::Replayed { trace, .. }) => {
                let (prelude, name) = (Arc::new(trace.prelude()), load()?.name);
                let ops = prelude.len();
                let load = Workload { name, ..Workload::replay(prelude, false) };
                (ops > 0).then_some((load, ops))
            }
            (Start::AsIs | Start::Prelude, _) => None,
        })
    }

    /// The report of all finished phases.
    pub fn report(&self) -> Report {
        let engine = self.engine().name();
        let identity = |workload| Identity {
            engine,
            workload,
            keys: self.settings.keys,
            threads: self.settings.threads,
        };
        let phases = self.phases.iter().map(|phase| {
            let run = Duration::try_from_secs_f64(phase.counts.seconds).unwrap_or_default();
            let timeline = phase.slices.timeline(run);
            let latency = phase.latencies.summary();
            let identity = identity(&phase.workload);
            let figures = phase.counts.figures(&identity, &phase.state, latency, Some(timeline));
            Figures { growth: phase.growth.clone(), ..figures }
        });
        let measured = || self.phases.iter().filter(|phase| !phase.is_load);
        let (mut counts, mut latencies) = (Counts::default(), Latencies::default());
        for phase in measured() {
            counts.add(&phase.counts);
            latencies.merge(&phase.latencies);
        }
        let names = measured().map(|phase| phase.workload.as_str()).collect::<Vec<_>>().join(",");
        let state = self.phases.last().map(|phase| phase.state.clone()).unwrap_or_default();
        Report {
            total: counts.figures(&identity(&names), &state, latencies.summary(), None),
            phases: phases.collect(),
            peak_rss_bytes: peak_rss_bytes(),
            settings: self.settings.listed(),
            peer: None,
        }
    }

    fn phase(
        &mut self,
        workload: &Workload,
        ops: u64,
        warmup: u64,
        rate: Option<f64>,
        is_load: bool,
        on_progress: OnProgress<'_>,
    ) -> Result<()> {
        let engine = self.opened.engine.clone();
        let writer = Requests::Drawn { mix: Mix::only(Operation::Put), draw: Draw::Uniform };
        let mut workers = self.workers(&*engine, workload, &writer, rate);
        let done = AtomicU64::new(0);
        let mut report = |done| {
            on_progress(Progress { workload: &workload.name, done, total: warmup + ops });
        };
        if warmup > 0 {
            pass(&mut workers, warmup, &done, &mut report)?;
        }
        let before = engine.stats();
        let device_writes_before = self.device_writes();
        let cpu_before = process::cpu_time();
        let mut growth = Vec::new();
        let mut watch = |done| {
            report(done);
            let done = done.saturating_sub(warmup);
            // A sample costs a call of `stats`: a short run has few.
            if done * GROWTH_SAMPLES / ops.max(1) > growth.len() as u64 {
                let written = Counts::between(&before, &engine.stats()).write_amplification();
                growth
                    .extend(written.map(|wa| Growth { ops: done, write_amplification: Some(wa) }));
            }
        };
        let took = pass(&mut workers, ops, &done, &mut watch)?;
        let settling = Instant::now();
        if !workload.is_read_only() {
            self.run_due_jobs()?;
        }
        let settle_seconds = settling.elapsed().as_secs_f64();
        let cpu = process::cpu_time().zip(cpu_before).map(|(now, before)| now - before);
        let after = engine.stats();
        let device_writes = self.device_writes().since(device_writes_before);

        let (mut latencies, mut slices) = (Latencies::default(), Slices::default());
        for worker in &workers {
            latencies.merge(&worker.latencies);
            slices.merge(&worker.slices);
        }
        drop(workers);
        let seconds = took.as_secs_f64();
        let counts = Counts {
            ops,
            seconds,
            settle_seconds,
            cpu_seconds: cpu.unwrap_or_default().as_secs_f64(),
            device_writes,
            ..Counts::between(&before, &after)
        };
        let (workload, state) = (workload.name.clone(), State::of(&after));
        self.phases.push(Phase { workload, is_load, counts, latencies, slices, state, growth });
        Ok(())
    }

    /// The kernel's counters, if the store is on disk.
    fn device_writes(&self) -> DeviceWrites {
        self.opened.path.as_deref().map(DeviceWrites::now).unwrap_or_default()
    }

    /// Whether the engine has background jobs that may be due.
    fn has_jobs(&self) -> bool {
        !self.engine().capabilities().incremental_gc
    }

    /// Runs all due background work.
    fn run_due_jobs(&self) -> Result<()> {
        if self.has_jobs() { self.engine().maintain() } else { self.engine().flush() }
    }

    /// The threads of a workload; an additional writer is the last.
    fn workers<'a>(
        &'a self,
        engine: &'a dyn Engine,
        workload: &'a Workload,
        writer: &'a Requests,
        rate: Option<f64>,
    ) -> Vec<Worker<'a>> {
        let settings = &self.settings;
        let threads = settings.threads;
        let phase = self.phases.len() as u64;
        let pace = settings.pace.filter(|_| self.has_jobs());
        let worker = |thread: usize, is_counted: bool| {
            // A phase has at most 1,025 threads, so streams are distinct.
            let rng = stream(settings.seed, (phase << 11) + thread as u64 + 1);
            let schedule = rate.filter(|_| is_counted).map(|rate| Schedule {
                first: Duration::from_secs_f64(thread as f64 / rate),
                interval: Duration::from_secs_f64(threads as f64 / rate),
            });
            Worker {
                engine,
                source: self.source(
                    if is_counted { &workload.requests } else { writer },
                    thread,
                    rng,
                ),
                durability: settings.durability,
                schedule,
                is_counted,
                pace,
                latencies: Latencies::default(),
                slices: Slices::default(),
                key: Vec::new(),
                keys: Vec::new(),
                batch: WriteBatch::new(),
            }
        };
        let mut workers: Vec<_> = (0..threads).map(|thread| worker(thread, true)).collect();
        if workload.has_writer {
            workers.push(worker(threads, false));
        }
        workers
    }

    /// The request source of a thread.
    fn source<'a>(&'a self, requests: &'a Requests, thread: usize, mut rng: Rng) -> Source<'a> {
        let settings = &self.settings;
        let (thread, threads) = (thread as u64, settings.threads as u64);
        let values = |size, rng: &mut Rng| Values::new(size, settings.compressible, rng);
        match requests {
            Requests::Drawn { mix, draw } => {
                let seed = match draw {
                    Draw::Shuffled => settings.seed ^ LOAD_SEED,
                    _ => settings.seed,
                };
                Source::Random(RandomSource {
                    keys: self.keys,
                    chooser: Chooser::new(*draw, settings.keys, seed, thread, threads),
                    values: values(settings.value.clone(), &mut rng),
                    mix,
                    rng,
                    population: &self.population,
                })
            }
            Requests::Replayed { trace, paced } => Source::Replay(ReplaySource {
                trace,
                paced: *paced,
                next: thread,
                step: threads,
                values: values(ValueSize::Fixed(trace.largest_value()), &mut rng),
                rng,
                bytes: 0,
            }),
        }
    }
}

/// Runs `ops` operations on the counted threads, and the other threads until these are done.
/// Returns the time of the counted threads.
fn pass(
    workers: &mut [Worker<'_>],
    ops: u64,
    done: &AtomicU64,
    report: &mut dyn FnMut(u64),
) -> Result<Duration> {
    let stop = AtomicBool::new(false);
    let pass = Pass { start: Instant::now(), done, stop: &stop };
    let counting = workers.iter().filter(|worker| worker.is_counted).count() as u64;
    let (mut took, mut fault) = (Duration::ZERO, None);
    std::thread::scope(|scope| {
        let (mut counted, mut others) = (Vec::new(), Vec::new());
        for (i, worker) in workers.iter_mut().enumerate() {
            let is_counted = worker.is_counted;
            let quota = match is_counted {
                true => ops / counting + u64::from((i as u64) < ops % counting),
                false => u64::MAX,
            };
            let pass = &pass;
            let handle =
                scope.spawn(move || worker.run(pass, quota).map(|()| pass.start.elapsed()));
            if is_counted { counted.push(handle) } else { others.push(handle) }
        }
        while counted.iter().any(|handle| !handle.is_finished()) {
            report(done.load(Relaxed));
            // Short, so that the callback does not prolong a short run.
            std::thread::park_timeout(PROGRESS_INTERVAL.min(Duration::from_millis(20)));
        }
        let mut join =
            |handle: std::thread::ScopedJoinHandle<'_, Result<Duration>>| match handle.join() {
                Ok(Ok(ended)) => Some(ended),
                Ok(Err(error)) => {
                    fault.get_or_insert(error);
                    None
                }
                Err(panic) => std::panic::resume_unwind(panic),
            };
        took = counted.into_iter().filter_map(&mut join).max().unwrap_or_default();
        stop.store(true, Relaxed);
        for handle in others {
            join(handle);
        }
    });
    report(done.load(Relaxed));
    fault.map_or(Ok(took), Err)
}

/// Checks that an engine supports values of `largest` bytes.
fn check_value(option: &str, largest: usize, engine: &dyn Engine) -> Result<()> {
    let limit = engine.capabilities().max_value_bytes;
    if largest <= limit {
        return Ok(());
    }
    let engine = engine.name();
    Err(Error::invalid_option(
        option,
        format!("{engine} takes values of at most {limit} bytes, not {largest}"),
    ))
}

#[cfg(test)]
mod tests;
