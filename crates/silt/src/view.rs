//! The views of the engine: generations and version.

use crate::generation::Generation;
use crate::version::Version;

/// The generations and the stores of one moment.
pub(crate) type View = siltstone_durable::View<Generation, Version>;
