//! CONFIG on the options of tables of a store.

use siltstone::{Db, DbOptions, Table};

use crate::support::{Client, TestServer};

fn tables(db: &Db) -> Vec<Table> {
    let options = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    vec![
        db.table_or_create("Orders", "lsm", &options(&[("memtable", "16MiB")])).unwrap(),
        db.table_or_create("orders_2", "lsm", &options(&[])).unwrap(),
        db.table_or_create("hot", "mica", &options(&[("memory", "32MiB")])).unwrap(),
    ]
}

fn failed(setting: &str, reason: &str) -> String {
    format!("-ERR CONFIG SET failed (possibly related to argument '{setting}') - {reason}")
}

#[test]
fn config_set_changes_options_of_one_table_durably_or_says_why_not() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open_or_create(dir.path().join("store"), DbOptions::default()).unwrap();
    let tables_of_db = tables(&db);
    let orders = tables_of_db[0].clone();
    let server = TestServer::of_tables(tables_of_db);
    let mut client = server.client();
    let get = |client: &mut Client, pattern: &str| client.call(&format!("CONFIG GET {pattern}"));
    assert_eq!(get(&mut client, "table.orders.*"), "[\"table.Orders.memtable\", \"16MiB\"]");
    assert!(!get(&mut client, "*").contains("table.Orders"), "of the server alone");

    let set = "CONFIG SET table.Orders.memtable 8MiB TABLE.Orders.triad.prefetch 64KiB";
    assert_eq!(client.call(set), "+OK");
    assert_eq!(get(&mut client, "table.Orders.mem*"), "[\"table.Orders.memtable\", \"8MiB\"]");
    assert_eq!(client.call("CONFIG SET table.orders_2.memtable 4MiB"), "+OK");
    assert_eq!(orders.options()["memtable"], "8MiB");
    assert_eq!(client.call("CONFIG SET table.hot.access crew"), "+OK");

    let at_open = "it is no option of that table that changes while it is open: restart the \
                   server with it in --table";
    let unknown = "there is no such table, or it is not one of its options";
    for (pairs, setting, reason) in [
        ("table.Orders.levels 64MiB:1GiB", "table.Orders.levels", at_open),
        ("table.Orders.colour red", "table.Orders.colour", at_open),
        ("table.none.memtable 1MiB", "table.none.memtable", unknown),
        ("table.Orders 1MiB", "table.Orders", unknown),
        (
            "table.Orders.memtable 1MiB table.hot.access erew",
            "table.hot.access",
            "give options of one table at a time",
        ),
        ("table.Orders.memtable 1MiB timeout 5", "timeout", unknown),
        ("table.Orders.memtable 1MiB other.Orders.cache 1MiB", "other.Orders.cache", unknown),
    ] {
        assert_eq!(client.call(&format!("CONFIG SET {pairs}")), failed(setting, reason), "{pairs}");
    }
    let invalid = client.call("CONFIG SET table.Orders.cache 1MiB table.Orders.memtable lots");
    assert!(invalid.starts_with(&failed("table.Orders.memtable", "")), "{invalid}");
    assert_eq!(orders.options().get("cache"), None, "all or none");

    drop((client, server, orders));
    drop(db);
    let db = Db::open(dir.path().join("store"), DbOptions::default()).unwrap();
    assert_eq!(db.spec_of("Orders").unwrap().options["memtable"], "8MiB");
    assert_eq!(db.spec_of("orders_2").unwrap().options["memtable"], "4MiB");
}
