//! Load: every lane writes from its own thread until the fault is over.
//!
//! The fault is a closure that runs beside the lanes. Before it calls `expect_disconnects` a lost
//! connection is a finding. When it returns, the lanes stop after their current round.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::Connection;
use crate::finding::{Result, Stop};
use crate::lane::{Lane, RoundEnd, Tolerance};

/// The state that the fault and the lanes share.
#[derive(Debug, Default)]
pub struct Control {
    disconnects: AtomicBool,
    stopped: AtomicBool,
    failed: AtomicBool,
    acknowledged: AtomicU64,
    refused: AtomicU64,
}

impl Control {
    /// From now on a lost connection ends a lane without a finding.
    pub fn expect_disconnects(&self) {
        self.disconnects.store(true, SeqCst);
    }

    /// Writes that were acknowledged since the load began.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(SeqCst)
    }

    /// Writes that were refused since the load began.
    pub fn refused(&self) -> u64 {
        self.refused.load(SeqCst)
    }

    /// Waits until `condition` holds, a lane has failed, or `limit` is over; returns whether it
    /// holds.
    pub fn wait_until(&self, limit: Duration, mut condition: impl FnMut(&Control) -> bool) -> bool {
        let until = Instant::now() + limit;
        while !self.failed.load(SeqCst) && Instant::now() < until {
            if condition(self) {
                return true;
            }
            thread::sleep(Duration::from_millis(1));
        }
        false
    }

    fn expects_disconnects(&self) -> bool {
        self.disconnects.load(SeqCst)
    }

    fn is_over(&self) -> bool {
        self.stopped.load(SeqCst)
    }
}

/// Runs the lanes against the server at `address` while `fault` runs, and until it returns.
///
/// # Errors
/// The finding of the fault, or else of the first lane that has one.
pub fn run<T>(
    lanes: &mut [Lane],
    address: SocketAddr,
    timeout: Duration,
    tolerance: Tolerance,
    fault: impl FnOnce(&Control) -> Result<T>,
) -> Result<T> {
    let control = Control::default();
    thread::scope(|scope| {
        let control = &control;
        let lanes: Vec<_> = lanes
            .iter_mut()
            .map(|lane| {
                scope.spawn(move || {
                    let ended = drive(lane, address, timeout, tolerance, control);
                    if ended.is_err() {
                        control.failed.store(true, SeqCst);
                    }
                    ended
                })
            })
            .collect();
        let fault = fault(control);
        control.stopped.store(true, SeqCst);
        let lanes: Vec<Result<()>> = lanes
            .into_iter()
            .map(|lane| {
                lane.join().unwrap_or_else(|_| Err(Stop::HarnessError("a lane panicked".into())))
            })
            .collect();
        let fault = fault?;
        lanes.into_iter().collect::<Result<Vec<()>>>()?;
        Ok(fault)
    })
}

fn drive(
    lane: &mut Lane,
    address: SocketAddr,
    timeout: Duration,
    tolerance: Tolerance,
    control: &Control,
) -> Result<()> {
    let number = lane.oracle.lane();
    let mut connection = None;
    while !control.is_over() {
        let Some(open) = &mut connection else {
            match Connection::open(address, timeout) {
                Ok(open) => connection = Some(open),
                Err(_) if control.expects_disconnects() && !tolerance.closes => return Ok(()),
                Err(_) if tolerance.closes => thread::sleep(Duration::from_millis(5)),
                Err(error) => {
                    return Err(Stop::Finding(format!("lane {number} cannot connect: {error}")));
                }
            }
            continue;
        };
        let before = lane.counts;
        let ended = lane.round(open, tolerance)?;
        let refused = lane.counts.refused - before.refused;
        control.acknowledged.fetch_add(lane.counts.acknowledged - before.acknowledged, SeqCst);
        control.refused.fetch_add(refused, SeqCst);
        match ended {
            RoundEnd::Answered if refused > 0 => thread::sleep(Duration::from_millis(1)),
            RoundEnd::Answered => {}
            RoundEnd::Closed if tolerance.closes => {
                thread::sleep(Duration::from_millis(1));
                connection = None;
            }
            RoundEnd::Closed if control.expects_disconnects() => return Ok(()),
            RoundEnd::Closed => {
                return Err(Stop::Finding(format!(
                    "lane {number}: the server closed the connection before the fault; its last error: {:?}",
                    lane.last_refusal
                )));
            }
        }
    }
    Ok(())
}
