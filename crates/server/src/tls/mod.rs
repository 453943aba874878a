//! TLS, by rustls.
//!
//! | module | contents |
//! | --- | --- |
//! | [`options`] | addresses and files |
//! | [`state`] | the configuration in force, which can be replaced |
//! | [`stream`] | TLS of one connection, without blocking |
//! | [`client`] | TLS of a client of a node |
//! | [`nodes`] | TLS between the nodes of a replicated table |
//!
//! Without the feature `tls` all but the options are those of `absent`: servers with TLS options
//! are refused.

#[cfg(not(feature = "tls"))]
mod absent;
#[cfg(feature = "tls")]
mod client;
#[cfg(feature = "tls")]
mod nodes;
#[cfg(all(test, feature = "tls"))]
mod nodes_tests;
mod options;
#[cfg(feature = "tls")]
mod state;
#[cfg(feature = "tls")]
mod stream;

#[cfg(not(feature = "tls"))]
pub(crate) use absent::{NodeTls, TlsState, TlsStream, connect_client};
#[cfg(feature = "tls")]
pub(crate) use client::connect_client;
#[cfg(feature = "tls")]
pub(crate) use nodes::NodeTls;
pub use options::{ClientAuth, ClientTlsFiles, NodeTlsFiles, TlsFiles, TlsOptions, TlsVersion};
#[cfg(feature = "tls")]
pub(crate) use state::TlsState;
#[cfg(feature = "tls")]
pub(crate) use stream::TlsStream;
