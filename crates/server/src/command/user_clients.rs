//! Closes the clients of users that were removed or have lost rights. Other clients notice a change
//! of their user at their next command.

use crate::acl::user::User;
use crate::pubsub::Kind;
use crate::shared::Shared;

/// Closes all clients of a user but one. Returns whether that is one of them.
pub(super) fn close_clients(shared: &Shared, name: &[u8], own_id: u64) -> bool {
    let mut is_own = false;
    for client in shared.clients.all().iter().filter(|client| client.is_of_user(name)) {
        if client.id == own_id {
            is_own = true;
        } else {
            client.kill();
        }
    }
    is_own
}

/// Closes the clients of a user that are subscribed to channels which it may not use, but one.
/// Returns whether that is one of them.
pub(super) fn close_subscribers(shared: &Shared, user: &User, own_id: u64) -> bool {
    let mut is_own = false;
    shared.pubsub.for_each(|kind, name, client| {
        if client.is_of_user(&user.name) && !user.allows_channel(name, kind == Kind::Pattern) {
            if client.id == own_id {
                is_own = true;
            } else {
                client.kill();
            }
        }
    });
    is_own
}
