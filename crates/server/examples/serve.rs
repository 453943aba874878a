//! Serves a directory over the Redis protocol, to measure with redis-benchmark:
//!
//! ```text
//! cargo run --release -p siltstone-server --example serve -- DIR [ADDRESS [always|everysec|no]]
//! ```

use siltstone::{Db, DbOptions};
use siltstone_server::{Fsync, Server, ServerOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().ok_or("usage: serve DIR [ADDRESS [always|everysec|no]]")?;
    let mut options = ServerOptions::default();
    if let Some(address) = args.next() {
        options.listen = address.parse()?;
    }
    options.fsync = match args.next().as_deref() {
        Some("always") => Fsync::Always,
        Some("no") => Fsync::Never,
        _ => Fsync::EverySecond,
    };
    let db = Db::open_or_create(&dir, DbOptions::default())?;
    let table = db.table_or_create("default", "lsm", &Default::default())?;
    Server::bind(vec![table], options)?.run_until_signal()?;
    db.close()?;
    Ok(())
}
