//! Checks of CONFIG SET: each setting's value becomes a change, which the command then applies.
//!
//! Source: the documentation of Redis's CONFIG; error texts of Redis 7.2.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

use crate::encoding_settings::EncodingSettings;
use crate::keyspace_events::KeyspaceEvents;
use crate::resp::number;
use crate::shared::Shared;
use crate::{ClientAuth, TlsFiles};

/// What an interpreter needs for a small script, in bytes.
const MIN_SCRIPT_MEMORY_BYTES: usize = 1 << 20;

/// A checked change of a setting.
pub(super) type Change<'a> = Box<dyn FnOnce(&Shared) + 'a>;

/// Changes the TLS files. Setting a file that is in force reads it again.
pub(super) fn change_files(files: &mut TlsFiles, name: &str, value: &[u8]) -> Result<(), String> {
    let path = || PathBuf::from(OsStr::from_bytes(value));
    match name {
        "tls-cert-file" => files.certificate = path(),
        "tls-key-file" => files.key = path(),
        "tls-ca-cert-file" => files.client_ca = (!value.is_empty()).then(path),
        "tls-auth-clients" => {
            let is = |(word, _): &&(&str, ClientAuth)| value.eq_ignore_ascii_case(word.as_bytes());
            let found = CLIENT_AUTH.iter().find(is).map(|(_, auth)| *auth);
            files.client_auth = found.ok_or_else(|| {
                "argument(s) must be one of the following: no, yes, optional".to_owned()
            })?;
        }
        _ => return Err("can't set immutable config".to_owned()),
    }
    Ok(())
}

/// Values of `tls-auth-clients`.
pub(super) const CLIENT_AUTH: [(&str, ClientAuth); 3] =
    [("no", ClientAuth::No), ("yes", ClientAuth::Required), ("optional", ClientAuth::Optional)];

/// Checks a change.
pub(super) fn change<'a>(shared: &Shared, name: &str, value: &[u8]) -> Result<Change<'a>, String> {
    let within = |min: i64, max: i64| {
        let number = number::parse_i64(value)
            .ok_or_else(|| "argument couldn't be parsed into an integer".to_owned())?;
        match (min..=max).contains(&number) {
            true => Ok(number),
            false => Err(format!("argument must be between {min} and {max} inclusive")),
        }
    };
    let count = |min: i64, max: i64| {
        within(min, max).map(|number| usize::try_from(number).unwrap_or_default())
    };
    if let Some((at, min)) = EncodingSettings::find(name) {
        let value = within(min, i64::MAX)?;
        return Ok(Box::new(move |shared| shared.settings.encodings.set(at, value)));
    }
    match name {
        "maxclients" => {
            let max = count(1, i64::from(u32::MAX))?;
            Ok(Box::new(move |shared| shared.settings.max_clients.store(max, Relaxed)))
        }
        "timeout" => {
            let seconds = count(0, i64::from(i32::MAX))? as u64;
            Ok(Box::new(move |shared| shared.settings.set_idle_timeout_seconds(seconds)))
        }
        "slowlog-log-slower-than" => {
            let micros = within(-1, i64::MAX)?;
            Ok(Box::new(move |shared| shared.settings.slow_command_us.store(micros, Relaxed)))
        }
        "slowlog-max-len" => {
            let len = count(0, i64::MAX)?;
            Ok(Box::new(move |shared| shared.settings.slow_log_len.store(len, Relaxed)))
        }
        "latency-monitor-threshold" => {
            let millis = count(0, i64::MAX)? as u64;
            Ok(Box::new(move |shared| {
                shared.settings.latency_threshold_ms.store(millis, Relaxed);
            }))
        }
        "busy-reply-threshold" | "lua-time-limit" => {
            let millis = count(0, i64::MAX)? as u64;
            Ok(Box::new(move |shared| shared.settings.busy_threshold_ms.store(millis, Relaxed)))
        }
        "script-memory-limit" => {
            let bytes = std::str::from_utf8(value).ok().and_then(bytes_of);
            let bytes = bytes.ok_or_else(|| "argument must be a memory value".to_owned())?;
            if bytes != 0 && bytes < MIN_SCRIPT_MEMORY_BYTES {
                return Err(format!(
                    "argument must be 0 (unlimited) or at least {MIN_SCRIPT_MEMORY_BYTES}"
                ));
            }
            Ok(Box::new(move |shared| shared.settings.script_memory_bytes.store(bytes, Relaxed)))
        }
        "stream-node-max-entries" => {
            let entries = count(0, i64::MAX)?;
            Ok(Box::new(move |shared| shared.settings.stream_node_entries.store(entries, Relaxed)))
        }
        "tracking-table-max-keys" => {
            let max = count(0, i64::MAX)?;
            Ok(Box::new(move |shared| shared.observers.tracking.set_max_keys(max)))
        }
        "acllog-max-len" => {
            let len = count(0, i64::MAX)?;
            Ok(Box::new(move |shared| shared.acl.log.max_entries.store(len, Relaxed)))
        }
        "acl-pubsub-default" => {
            let is_all = match value.to_ascii_lowercase().as_slice() {
                b"allchannels" if shared.replication.is_some() => {
                    return Err(
                        "the users of a cluster are those of all its nodes; give each user \
                                its channels: ACL SETUSER NAME allchannels"
                            .to_owned(),
                    );
                }
                b"allchannels" => true,
                b"resetchannels" => false,
                _ => {
                    return Err("argument(s) must be one of the following: allchannels, \
                                resetchannels"
                        .to_owned());
                }
            };
            Ok(Box::new(move |shared| shared.acl.allows_channels.store(is_all, Relaxed)))
        }
        "notify-keyspace-events" => {
            let flags = std::str::from_utf8(value).ok().and_then(KeyspaceEvents::parse);
            let flags = flags.ok_or_else(|| {
                "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".to_owned()
            })?;
            Ok(Box::new(move |shared| {
                shared.events.set(flags);
                let (any, expired) = shared.events.active();
                shared.observers.set_events(any, expired);
            }))
        }
        "client-output-buffer-limit" => output_limits(shared, value),
        _ => Err("can't set immutable config".to_owned()),
    }
}

/// Groups of class, hard limit, soft limit and seconds. The limit of the class `normal` is that of
/// `--max-output`; there are no replicas.
fn output_limits<'a>(shared: &Shared, value: &[u8]) -> Result<Change<'a>, String> {
    let text = String::from_utf8_lossy(value).to_lowercase();
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.is_empty() || !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.".to_owned());
    }
    let mut limits = None;
    for group in words.chunks_exact(4) {
        let bytes = |text: &str| {
            let bytes = bytes_of(text);
            bytes.ok_or_else(|| {
                "Error in hard, soft or soft_seconds setting in buffer limit configuration."
                    .to_owned()
            })
        };
        let (hard, soft, seconds) = (bytes(group[1])?, bytes(group[2])?, bytes(group[3])? as u64);
        match group[0] {
            "pubsub" => limits = Some((hard, soft, seconds)),
            "normal" if (hard, soft, seconds) == (shared.options.max_output_bytes, 0, 0) => {}
            "normal" => {
                return Err("the limit of the class normal is set by --max-output".to_owned());
            }
            "replica" | "slave" => {}
            _ => {
                return Err(
                    "Invalid client class specified in buffer limit configuration.".to_owned()
                );
            }
        }
    }
    Ok(Box::new(move |shared| {
        if let Some((hard, soft, seconds)) = limits {
            shared.clients.limits.set(hard, soft, seconds);
        }
    }))
}

/// Parses a size with Redis's units: `k` is 1000, `kb` is 1024.
fn bytes_of(text: &str) -> Option<usize> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    digits.parse::<usize>().ok()?.checked_mul(unit)
}
