//! A `mica` table stays within its memory budget, whatever clients do. A separate test program,
//! because the kernel counts pages per process.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod support;

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::time::Duration;

use siltstone_client::wire::hello;
use siltstone_client::{Action, Client, ClientOptions, Value};
use siltstone_testkit::{TestRng, stop_guard};
use support::{TestServer, mica};

const BUDGET_BYTES: u64 = 64 << 20;
/// Memory for connections, buffers, cached responses and the allocator.
const OVERHEAD_BYTES: u64 = 48 << 20;

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = status.lines().find(|line| line.starts_with("Rss:")).unwrap().to_owned();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// Stores items of 1000 bytes.
fn fill(server: &TestServer, items: u32) {
    let options = ClientOptions { deadline: Duration::from_secs(20), ..Default::default() };
    let mut client = Client::connect(server.udp.unwrap(), options).unwrap();
    for first in (0..items).step_by(40) {
        let keys: Vec<_> = (first..first + 40).map(u32::to_le_bytes).collect();
        let value = Value { bytes: &[7; 1000], ..Value::default() };
        let puts: Vec<_> = keys.iter().map(|key| (&key[..], Action::Put(value))).collect();
        client.execute(&puts, |_, _| ()).unwrap();
    }
}

#[test]
fn hostile_clients_do_not_increase_memory() {
    let table = format!("mode=cache mapping=plain partitions=2 memory={BUDGET_BYTES} item=1000");
    let before = resident();
    let server = TestServer::over(Some(mica(&table)), |options| {
        options.udp = Some("127.0.0.1:0".parse().unwrap());
    });
    fill(&server, 80_000);
    let running = stop_guard::RunFlag::default();
    let mut most = 0;
    std::thread::scope(|scope| {
        let (server, running) = (&server, &running);
        let _ending = running.clear_on_drop();
        for (number, command) in ["DBSIZE", "KEYS nothing*", "RANDOMKEY", "SCAN 0 COUNT 100000"]
            .into_iter()
            .cycle()
            .take(8)
            .enumerate()
        {
            scope.spawn(move || {
                let mut client = server.client();
                while running.is_set() {
                    assert!(!client.call(command).starts_with('-'), "{number}");
                }
            });
        }
        scope.spawn(move || {
            let (socket, mut rng) = (UdpSocket::bind("127.0.0.1:0").unwrap(), TestRng::new(1));
            while running.is_set() {
                let mut packet = hello::hello(rng.below(1 << 40), b"").to_vec();
                let at = rng.index(packet.len());
                packet[at] = rng.below(256) as u8;
                for _ in 0..20 {
                    socket.send_to(&packet, server.udp.unwrap()).unwrap();
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        scope.spawn(move || {
            // Clients that never read or never complete a request, sixteen at once: a slow machine
            // would accumulate more.
            let mut streams = VecDeque::new();
            while running.is_set() {
                let mut stream = TcpStream::connect(server.address).unwrap();
                let _ = stream.write_all(b"*2\r\n$3\r\nGET\r\n$400000000\r\n");
                let _ = stream.write_all(&[b'x'; 100_000]);
                streams.push_back(stream);
                if streams.len() == 16 {
                    let mut oldest = streams.pop_front().unwrap();
                    let _ = oldest.shutdown(Shutdown::Write);
                    // The server then closes the connection, too.
                    let _ = oldest.read(&mut [0]);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        fill(server, 4000);
        for _ in 0..50 {
            most = most.max(resident());
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let grown = most.saturating_sub(before);
    assert!(grown < BUDGET_BYTES + OVERHEAD_BYTES, "{} MiB more than before", grown >> 20);
}
