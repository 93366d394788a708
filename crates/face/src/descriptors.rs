//! File descriptors that clients leave to the node.

use rustix::process::{Resource, getrlimit};
use std::os::fd::AsRawFd;

/// Descriptors that are not for clients: the log, tables and other nodes need them at any time.
const KEPT: u64 = 256;

/// Whether a connection that was accepted just now may stay. The system gives out the lowest descriptor that is free, so a high one
/// tells that few are left. A node that cannot open a file of its log stops writing, which is worse than fewer clients.
pub(crate) fn leaves_descriptors(connection: &impl AsRawFd) -> bool {
    getrlimit(Resource::Nofile).current.is_none_or(|limit| is_below(connection.as_raw_fd(), limit))
}

fn is_below(descriptor: i32, limit: u64) -> bool {
    // Where there are few in all, most of them are for clients nevertheless.
    let kept = KEPT.min(limit / 8);
    u64::try_from(descriptor).is_ok_and(|descriptor| descriptor < limit - kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_descriptors_are_not_for_clients() {
        assert!(is_below(19_743, 20_000) && !is_below(19_744, 20_000));
        assert!(is_below(447, 512) && !is_below(448, 512));
        assert!(!is_below(-1, 512));
    }
}
