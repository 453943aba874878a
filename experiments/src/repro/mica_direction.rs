//! `mica-direction`: requests directed by the client against requests directed by the server.
//!
//! Two ports with a thread and a partition each, under EREW. The client either sends each request
//! to its partition's port, or to any port; then half of them are forwarded between the threads.
//! Both threads and the client share the machine's cores.
//!
//! Invariant: the two configurations differ only in the direction.
//!
//! Source: Lim, thesis (2015), section 5.4.5 and table 5.1: 50 % GET on tiny items.

use siltstone_engine::Result;

use super::bars::bar;
use super::mica_bench::PAPER;
use super::{Experiment, Measurement};
use crate::net::Load;
use crate::net::draws::Sizes;
use crate::net::drivers::{Driver, Protocol};
use crate::net::servers::{Between, GSO_SEGMENTS, Kind, Server};

const ITEMS: f64 = 1e6;
/// Memory of the server for items, in MiB per million items.
const MEMORY_MIB: f64 = 256.0;
const SECONDS: f64 = 2.0;

pub(super) struct MicaDirection;

impl Experiment for MicaDirection {
    fn id(&self) -> &'static str {
        "mica-direction"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "table 5.1"
    }

    fn claim(&self) -> &'static str {
        "software direction reaches 44.1 % (uniform) and 40.0 % (skewed) of the client's"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let items = (ITEMS * scale) as u64;
        let memory = (MEMORY_MIB * scale).ceil() as u64 + 64;
        // The thesis has one request per packet; small batches include both kinds of cost.
        let load = Load {
            items,
            sizes: Sizes::TINY,
            skew: 0.0,
            gets: 0.5,
            batch: 8,
            window: 32,
            windows: 16,
        };
        let mut rates = [[0f64; 2]; 2];
        for turn in 0..2 {
            for (any_port, rates) in [false, true].into_iter().zip(&mut rates) {
                let server = Server::start(
                    Kind::Ours {
                        ports: 2,
                        item: 16,
                        any_port,
                        xdp: false,
                        gso_segments: GSO_SEGMENTS,
                    },
                    Between::Loopback,
                    "0,1",
                    1,
                    memory,
                )?;
                let mut driver = Driver::connect(&server, Protocol::Udp, load)?;
                driver.fill(load)?;
                for (skew, rate) in [0.0, 0.99].into_iter().zip(rates) {
                    let load = Load { skew, ..load };
                    *rate = rate.max(driver.run(load, SECONDS)?.rate);
                }
                progress(2 * turn + 1 + u64::from(any_port), 4);
            }
        }
        let [client, software] = rates;
        let mut checks = Vec::new();
        let draws = [
            ("uniform", bar("mica-direction", "uniform")),
            ("Zipf 0.99", bar("mica-direction", "zipf")),
        ];
        for (at, (name, bar)) in draws.into_iter().enumerate() {
            checks.push(bar.check(
                format!("software against client direction, {name}"),
                software[at] / client[at],
            ));
        }
        let millions = |rates: [f64; 2]| format!("{:.2} {:.2}", rates[0] / 1e6, rates[1] / 1e6);
        let scale = format!(
            "{items} items of 8 + 8 bytes, 2 ports, packets of {} requests; M operations/s (uniform, \
             Zipf 0.99): client {}; software {}",
            load.batch,
            millions(client),
            millions(software)
        );
        Ok(Measurement { scale, checks, plot: None })
    }
}
