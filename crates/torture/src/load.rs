//! Load: all lanes write at once, each from a thread of its own, until a fault has struck.
//!
//! The fault is a closure that runs beside the lanes. It says when it strikes, because before that a lost
//! connection is a finding; when it returns the lanes end with the round that they are in.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::Connection;
use crate::finding::{Result, Stop};
use crate::lane::{Ended, Lane, Manners};

/// What the fault and the lanes tell each other.
#[derive(Debug, Default)]
pub struct Control {
    struck: AtomicBool,
    stopped: AtomicBool,
    failed: AtomicBool,
    acknowledged: AtomicU64,
    refused: AtomicU64,
}

impl Control {
    /// From now on connections may be lost.
    pub fn strike(&self) {
        self.struck.store(true, SeqCst);
    }

    /// Writes that were acknowledged since the load began.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(SeqCst)
    }

    /// Writes that were refused since the load began.
    pub fn refused(&self) -> u64 {
        self.refused.load(SeqCst)
    }

    /// Waits until `holds`, or a lane has failed, or `limit` is over; tells whether it holds.
    pub fn wait_until(&self, limit: Duration, mut holds: impl FnMut(&Control) -> bool) -> bool {
        let until = Instant::now() + limit;
        while !self.failed.load(SeqCst) && Instant::now() < until {
            if holds(self) {
                return true;
            }
            thread::sleep(Duration::from_millis(1));
        }
        false
    }

    fn has_struck(&self) -> bool {
        self.struck.load(SeqCst)
    }

    fn is_over(&self) -> bool {
        self.stopped.load(SeqCst)
    }
}

/// Runs the lanes against the server at `address` while `fault` runs, and until it returns.
///
/// # Errors
/// What the fault or else the first lane found.
pub fn run<T>(
    lanes: &mut [Lane],
    address: SocketAddr,
    patience: Duration,
    manners: Manners,
    fault: impl FnOnce(&Control) -> Result<T>,
) -> Result<T> {
    let control = Control::default();
    thread::scope(|scope| {
        let control = &control;
        let lanes: Vec<_> = lanes
            .iter_mut()
            .map(|lane| {
                scope.spawn(move || {
                    let ended = drive(lane, address, patience, manners, control);
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
                lane.join().unwrap_or_else(|_| Err(Stop::Trouble("a lane panicked".into())))
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
    patience: Duration,
    manners: Manners,
    control: &Control,
) -> Result<()> {
    let number = lane.oracle.lane();
    let mut connection = None;
    while !control.is_over() {
        let Some(open) = &mut connection else {
            match Connection::open(address, patience) {
                Ok(open) => connection = Some(open),
                Err(_) if control.has_struck() && !manners.closes => return Ok(()),
                Err(_) if manners.closes => thread::sleep(Duration::from_millis(5)),
                Err(error) => {
                    return Err(Stop::Wrong(format!("lane {number} cannot connect: {error}")));
                }
            }
            continue;
        };
        let before = lane.counts;
        let ended = lane.round(open, manners)?;
        let refused = lane.counts.refused - before.refused;
        control.acknowledged.fetch_add(lane.counts.acknowledged - before.acknowledged, SeqCst);
        control.refused.fetch_add(refused, SeqCst);
        match ended {
            Ended::Answered if refused > 0 => thread::sleep(Duration::from_millis(1)),
            Ended::Answered => {}
            Ended::Closed if manners.closes => {
                thread::sleep(Duration::from_millis(1));
                connection = None;
            }
            Ended::Closed if control.has_struck() => return Ok(()),
            Ended::Closed => {
                return Err(Stop::Wrong(format!(
                    "lane {number}: the server closed the connection, and no fault had struck; its last error: {:?}",
                    lane.last_refusal
                )));
            }
        }
    }
    Ok(())
}
