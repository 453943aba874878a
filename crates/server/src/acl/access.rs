//! The user of a connection.

use std::sync::Arc;

use super::user::{DEFAULT_USER, User};
use super::users::Acl;

/// The user of a connection, as it was at some generation of the users.
pub(crate) struct Access {
    user: Arc<User>,
    is_authenticated: bool,
    /// Generation in which the user was looked up.
    seen: u64,
    /// Generation in which the user may do everything; 0: none.
    free_at: u64,
}

/// The error that the user was removed.
#[derive(Debug)]
pub(crate) struct UserRemoved;

impl Access {
    /// Of a new connection.
    pub(crate) fn new(acl: &Acl) -> Self {
        let generation = acl.generation();
        let user = acl.default_user();
        let is_authenticated = user.is_open();
        let mut access = Access { user, is_authenticated, seen: generation, free_at: 0 };
        access.update(generation);
        access
    }

    /// Of a command that is run again for a client with this user.
    pub(crate) fn again(acl: &Acl, user: Arc<User>) -> Self {
        let mut access = Access { user, is_authenticated: true, seen: 0, free_at: 0 };
        // A removed user is noticed by the check of the command.
        let _ = access.refresh(acl);
        access
    }

    /// Makes the connection that of a user who has logged in.
    pub(crate) fn log_in(&mut self, user: Arc<User>) {
        // It may have changed since its password was checked, and is looked up at the next command.
        *self = Access { user, is_authenticated: true, seen: 0, free_at: 0 };
    }

    /// As a new connection.
    pub(crate) fn reset(&mut self, acl: &Acl) {
        *self = Access::new(acl);
    }

    pub(crate) fn user(&self) -> &Arc<User> {
        &self.user
    }

    pub(crate) fn is_authenticated(&self) -> bool {
        self.is_authenticated
    }

    /// Whether the user may do everything, also after all changes so far. Cost: one atomic load.
    #[inline]
    pub(crate) fn is_free(&self, acl: &Acl) -> bool {
        self.free_at == acl.generation()
    }

    /// Looks the user up again if users were changed.
    ///
    /// # Errors
    /// [`UserRemoved`]: the connection must be closed.
    pub(crate) fn refresh(&mut self, acl: &Acl) -> Result<(), UserRemoved> {
        let generation = acl.generation();
        if self.seen != generation {
            self.user = acl.user(&self.user.name).ok_or(UserRemoved)?;
            self.is_authenticated |= self.user.name == DEFAULT_USER && self.user.is_open();
            self.seen = generation;
            self.update(generation);
        }
        Ok(())
    }

    fn update(&mut self, generation: u64) {
        let is_free = self.is_authenticated && self.user.is_unrestricted();
        self.free_at = if is_free { generation } else { 0 };
    }
}
