//! SCAN, KEYS, DBSIZE and FLUSHALL cover every key of a `mica` table, which has no order and no
//! versions.

use std::collections::BTreeSet;

use crate::support::{TestServer, mica};
use siltstone_testkit::stop_guard;

/// All keys, by SCAN.
fn scan_all(server: &TestServer, count: &str) -> Vec<String> {
    let (mut client, mut cursor, mut keys) = (server.client(), "0".to_owned(), Vec::new());
    loop {
        let reply = client.call(&format!("SCAN {cursor} COUNT {count}"));
        let mut words = reply
            .trim_matches(['[', ']'])
            .split(", ")
            .map(|word| word.trim_matches(['[', ']', '"']).to_owned());
        cursor = words.next().unwrap();
        keys.extend(words.filter(|key| !key.is_empty()));
        if cursor == "0" {
            return keys;
        }
    }
}

/// Every key that stays is returned once, despite concurrent inserts and deletes.
#[test]
fn scan_returns_each_key_of_a_mica_table() {
    for table in [
        "mode=cache partitions=4 memory=32MiB access=crcw",
        "access=crew memory=32MiB partitions=1 buckets=60 spare=0.5",
    ] {
        let server = TestServer::over(Some(mica(table)), |_| ());
        let mut client = server.client();
        assert_eq!(scan_all(&server, "10"), Vec::<String>::new());
        for key in 0..200 {
            client.expect(&[(&format!("SET stays:{key} 1"), "+OK")]);
        }
        for count in ["1", "7", "10000"] {
            let running = stop_guard::RunFlag::default();
            let keys = std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut client = server.client();
                    while running.is_set() {
                        (0..50).for_each(|key| drop(client.call(&format!("SET passes:{key} 1"))));
                        (0..50).for_each(|key| drop(client.call(&format!("DEL passes:{key}"))));
                    }
                });
                let _ending = running.clear_on_drop();
                scan_all(&server, count)
            });
            let stay: Vec<_> = keys.iter().filter(|key| key.starts_with("stays")).collect();
            assert_eq!(stay.len(), 200, "{table}, {count}");
            assert_eq!(stay.iter().collect::<BTreeSet<_>>().len(), 200);
        }
        client.expect(&[("DBSIZE", ":200")]);
        assert_eq!(client.call("KEYS stays:1*").matches("stays").count(), 111);
        // A transaction's own writes are visible, and its deletions are not.
        client.expect(&[("MULTI", "+OK"), ("DEL stays:7", "+QUEUED"), ("SET mine 1", "+QUEUED")]);
        client.expect(&[("DBSIZE", "+QUEUED"), ("KEYS m*", "+QUEUED")]);
        client.expect(&[
            ("EXEC", "[:1, +OK, :200, [\"mine\"]]"),
            ("FLUSHALL", "+OK"),
            ("DBSIZE", ":0"),
        ]);
    }
}
