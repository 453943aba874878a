//! On-media formats shared by the engines: record log, sorted table, manifest.
