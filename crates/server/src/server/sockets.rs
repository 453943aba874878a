//! The sockets of a server. They are bound before its tables are opened, so that an address in use
//! is reported before a store is created. The ports of a `mica` table come after: they need its
//! store.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use mio::net::TcpListener;
use siltstone::catalogue::TableSpec;
use siltstone_engine::{Error, Result};
use siltstone_mica::Store;

use super::tables::find_mica;
use crate::ServerOptions;
use crate::metrics::http::IsTls;
use crate::net::listen::listen;
use crate::net::protocol::{Endpoint, Protocol};
use crate::net::unix_socket::UnixSocket;
use crate::store::Database;
use crate::udp::Ports;

/// The bound sockets of all protocols but that of `mica`.
pub(super) struct Sockets {
    pub(super) listeners: Vec<(TcpListener, Endpoint)>,
    pub(super) unix: Option<UnixSocket>,
    pub(super) memcached_udp: Option<UdpSocket>,
    pub(super) metrics: Vec<(TcpListener, IsTls)>,
    pub(super) addresses: Addresses,
}

/// Bound addresses.
pub(super) struct Addresses {
    pub(super) listen: SocketAddr,
    pub(super) memcached: Option<SocketAddr>,
    pub(super) metrics: Option<SocketAddr>,
    pub(super) tls_listen: Option<SocketAddr>,
    pub(super) tls_memcached: Option<SocketAddr>,
    pub(super) tls_metrics: Option<SocketAddr>,
}

impl Sockets {
    /// Checks that all sockets can be bound.
    pub(super) fn check(options: &ServerOptions) -> Result<()> {
        let tls = options.tls.as_ref();
        let addresses = [
            Some(options.listen),
            options.memcached,
            options.metrics,
            tls.and_then(|tls| tls.listen),
            tls.and_then(|tls| tls.memcached),
            tls.and_then(|tls| tls.metrics),
        ];
        addresses.into_iter().flatten().try_for_each(|address| listen(address).map(drop))?;
        options.unix_socket.as_ref().map(|(path, _)| UnixSocket::check(path)).transpose()?;
        options.memcached_udp.map(bind_udp).transpose().map(drop)
    }

    pub(super) fn bind(options: &ServerOptions) -> Result<Self> {
        let (listen, listener) = bind_tcp(options.listen)?;
        let mut listeners = vec![(listener, Endpoint { protocol: Protocol::Resp, is_tls: false })];
        let mut serve = |wanted: Option<SocketAddr>, protocol, is_tls| -> Result<_> {
            let Some((address, listener)) = wanted.map(bind_tcp).transpose()? else {
                return Ok(None);
            };
            listeners.push((listener, Endpoint { protocol, is_tls }));
            Ok(Some(address))
        };
        let mut metrics = Vec::new();
        let mut serve_metrics = |wanted: Option<SocketAddr>, is_tls| -> Result<_> {
            let Some((address, listener)) = wanted.map(bind_tcp).transpose()? else {
                return Ok(None);
            };
            metrics.push((listener, is_tls));
            Ok(Some(address))
        };
        let tls = options.tls.as_ref();
        let addresses = Addresses {
            listen,
            memcached: serve(options.memcached, Protocol::Memcached, false)?,
            metrics: serve_metrics(options.metrics, false)?,
            tls_listen: serve(tls.and_then(|tls| tls.listen), Protocol::Resp, true)?,
            tls_memcached: serve(tls.and_then(|tls| tls.memcached), Protocol::Memcached, true)?,
            tls_metrics: serve_metrics(tls.and_then(|tls| tls.metrics), true)?,
        };
        let unix = options.unix_socket.as_ref();
        let unix = unix.map(|(path, mode)| UnixSocket::bind(path, *mode)).transpose()?;
        let memcached_udp = options.memcached_udp.map(bind_udp).transpose()?;
        Ok(Sockets { listeners, unix, memcached_udp, metrics, addresses })
    }

    /// Whether memcached clients are served.
    pub(super) fn have_memcached(&self) -> bool {
        let addresses = &self.addresses;
        self.memcached_udp.is_some()
            || addresses.memcached.is_some()
            || addresses.tls_memcached.is_some()
    }
}

/// The UDP ports of a `mica` table.
pub(super) struct MicaPorts {
    pub(super) ports: Ports,
    pub(super) store: Arc<Store>,
    /// The index of the table.
    pub(super) table: usize,
}

impl MicaPorts {
    /// Checks that they can be bound for one of `tables`.
    pub(super) fn check(
        address: SocketAddr,
        tables: &[(&str, &TableSpec)],
        options: &ServerOptions,
    ) -> Result<()> {
        let mica = |spec: &TableSpec| {
            (spec.engine == "mica").then(|| siltstone_mica::Options::from_map(&spec.options))
        };
        let tables = tables.iter().map(|(name, spec)| (*name, mica(spec)));
        let (_, mica) = find_mica(tables, options.udp_table.as_deref())?;
        let threads = options.udp_threads(mica?.partitions);
        Ports::bind(address, threads, None, options.udp_gso_segments).map(drop)
    }

    /// `memcached_table`: the table of memcached clients, if they are served.
    pub(super) fn bind(
        address: SocketAddr,
        databases: &mut [Database],
        memcached_table: Option<usize>,
        options: &ServerOptions,
    ) -> Result<Self> {
        let stores = databases.iter().map(|d| (d.name.as_str(), d.mica.clone()));
        let (table, store) = find_mica(stores, options.udp_table.as_deref())?;
        if memcached_table == Some(table) && !store.has_cas() {
            return Err(Error::invalid_option(
                "udp",
                "the table also serves memcached clients, whose cas must detect writes over UDP: \
                 create it with cas=on, or serve another table"
                    .to_owned(),
            ));
        }
        let threads = options.udp_threads(store.partitions());
        databases[table].locks.set_burst_threads(threads);
        let (xdp, gso_segments) = (options.udp_xdp.as_ref(), options.udp_gso_segments);
        let ports = Ports::bind(address, threads, xdp, gso_segments)?;
        Ok(MicaPorts { ports, store, table })
    }
}

fn bind_tcp(address: SocketAddr) -> Result<(SocketAddr, TcpListener)> {
    let listener = listen(address)?;
    let address = listener
        .local_addr()
        .map_err(|error| Error::io("listen on", address.to_string(), &error))?;
    Ok((address, listener))
}

fn bind_udp(address: SocketAddr) -> Result<UdpSocket> {
    UdpSocket::bind(address).map_err(|error| Error::io("bind to", address.to_string(), &error))
}
