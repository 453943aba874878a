//! Retries while the previous owner of an interface or queue has not released it.
//!
//! The kernel releases an attachment some time after its descriptors are closed, when no CPU uses
//! it any more. A process forked at that moment also holds copies of all descriptors until it calls
//! `exec`.

use std::io;
use std::time::{Duration, Instant};

/// Longer than a loaded machine takes.
const MAX_WAIT: Duration = Duration::from_secs(1);
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// Calls `attempt` until it returns something other than `EBUSY`, for up to a second.
///
/// # Errors
/// The first other error; `EBUSY` if it persists.
pub(super) fn retry_while_busy<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let deadline = Instant::now() + MAX_WAIT;
    loop {
        match attempt() {
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < deadline =>
            {
                std::thread::sleep(RETRY_INTERVAL);
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_busy_errors_are_retried() {
        let query = |answers: &[i32]| {
            let mut query = 0;
            let result = retry_while_busy(|| {
                query += 1;
                match answers.get(query - 1) {
                    Some(&error) => Err(io::Error::from_raw_os_error(error)),
                    None => Ok(()),
                }
            });
            (query, result.map_err(|error| error.raw_os_error()))
        };
        assert_eq!(query(&[]), (1, Ok(())));
        assert_eq!(query(&[libc::EBUSY, libc::EBUSY]), (3, Ok(())));
        assert_eq!(query(&[libc::EBUSY, libc::EPERM]), (2, Err(Some(libc::EPERM))));
        let (times, result) = query(&[libc::EBUSY; 1000]);
        assert!(times > 1 && result == Err(Some(libc::EBUSY)), "{times} times: {result:?}");
    }
}
