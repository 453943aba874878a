//! What the shims of other stores' C interfaces share: LevelDB's and RocksDB's.
//!
//! | module | contents |
//! | --- | --- |
//! | [`boundary`] | bytes, errors and panics between C and Rust |
//! | [`destroy`] | the removal of a database |
//! | [`estimate`] | estimated sizes of ranges of keys |
//! | [`foreign`] | objects of the program: a state and its destructor |

pub mod boundary;
pub mod destroy;
pub mod estimate;
pub mod foreign;
