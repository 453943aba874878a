//! Waiting for what the owner before lets go, of an interface or of one of its queues.
//!
//! Its descriptors are closed, and yet the kernel holds on for a while: it ends what was attached when no
//! processor looks at it any more; and a process that is begun just then has copies of all descriptors until
//! it is another program.
//!
//! Source: ours.

use std::io;
use std::time::{Duration, Instant};

/// Longer than it takes a loaded machine.
const LETS_GO_WITHIN: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What `attempt` returns, once it is no more that something is busy.
///
/// # Errors
/// Its own; that it is busy, if it stays so.
pub(super) fn once_let_go<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let patience = Instant::now() + LETS_GO_WITHIN;
    loop {
        match attempt() {
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < patience =>
            {
                std::thread::sleep(LOOK_AGAIN);
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_what_is_busy_asked_for_again_and_nothing_else() {
        let asked = |answers: &[i32]| {
            let mut asked = 0;
            let result = once_let_go(|| {
                asked += 1;
                match answers.get(asked - 1) {
                    Some(&error) => Err(io::Error::from_raw_os_error(error)),
                    None => Ok(()),
                }
            });
            (asked, result.map_err(|error| error.raw_os_error()))
        };
        assert_eq!(asked(&[]), (1, Ok(())));
        assert_eq!(asked(&[libc::EBUSY, libc::EBUSY]), (3, Ok(())));
        assert_eq!(asked(&[libc::EBUSY, libc::EPERM]), (2, Err(Some(libc::EPERM))));
        let (times, result) = asked(&[libc::EBUSY; 1000]);
        assert!(times > 1 && result == Err(Some(libc::EBUSY)), "{times} times: {result:?}");
    }
}
