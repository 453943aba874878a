//! TLS, by rustls.
//!
//! | module | contents |
//! | --- | --- |
//! | [`options`] | addresses and files |
//! | [`state`] | the configuration in force, which can be replaced |
//! | [`stream`] | TLS of one connection, without blocking |
//!
//! Without the feature `tls` the last two are those of `absent`: servers with TLS options are
//! refused.

#[cfg(not(feature = "tls"))]
mod absent;
mod options;
#[cfg(feature = "tls")]
mod state;
#[cfg(feature = "tls")]
mod stream;

#[cfg(not(feature = "tls"))]
pub(crate) use absent::{TlsState, TlsStream};
pub use options::{ClientAuth, TlsFiles, TlsOptions, TlsVersion};
#[cfg(feature = "tls")]
pub(crate) use state::TlsState;
#[cfg(feature = "tls")]
pub(crate) use stream::TlsStream;
