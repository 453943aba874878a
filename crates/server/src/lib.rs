//! Serves a Siltstone store over the Redis protocol.
