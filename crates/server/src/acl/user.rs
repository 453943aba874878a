//! A user: whether it may log in, its passwords and its rights.

use sha2::{Digest, Sha256};

use super::names::CommandNames;
use super::selector::{Call, Denial, Selector};
use crate::command::definition::NO_AUTH;
use crate::password::constant_time_eq;
use crate::resp::Args;

/// The user of connections that have not named another.
pub(crate) const DEFAULT_USER: &[u8] = b"default";

/// SHA-256 of a password.
pub(super) type Hash = [u8; 32];

/// A user.
#[derive(Clone)]
pub(crate) struct User {
    pub(crate) name: Vec<u8>,
    /// May log in.
    pub(crate) is_enabled: bool,
    /// Any password is right.
    pub(crate) needs_no_password: bool,
    /// Has no effect here: payloads are always checked.
    pub(super) skips_sanitizing: bool,
    pub(super) passwords: Vec<Hash>,
    /// The first is the user's own, the others were given in parentheses.
    pub(crate) selectors: Vec<Selector>,
}

/// The hash of a password.
pub(super) fn hash(password: &[u8]) -> Hash {
    Sha256::digest(password).into()
}

/// A hash as text.
pub(super) fn hex(hash: &Hash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl User {
    /// A user without rights, who cannot log in.
    pub(super) fn new(names: &CommandNames, name: &[u8], allows_channels: bool) -> Self {
        User {
            name: name.to_vec(),
            is_enabled: false,
            needs_no_password: false,
            skips_sanitizing: false,
            passwords: Vec::new(),
            selectors: vec![Selector::new(names, allows_channels)],
        }
    }

    /// The user `default` as it is without other rules: it may do everything.
    pub(super) fn default_user(names: &CommandNames, password: Option<&str>) -> Self {
        let mut user = User::new(names, DEFAULT_USER, true);
        user.is_enabled = true;
        user.needs_no_password = password.is_none();
        user.passwords.extend(password.map(|password| hash(password.as_bytes())));
        user.selectors[0].commands.set_all(true);
        user.selectors[0].keys = None;
        user
    }

    /// The name, for messages.
    pub(crate) fn shown_name(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }

    /// Whether connections are this user without logging in, if it is the default user.
    pub(crate) fn is_open(&self) -> bool {
        self.is_enabled && self.needs_no_password
    }

    /// Whether everything is allowed.
    pub(crate) fn is_unrestricted(&self) -> bool {
        self.selectors.iter().any(Selector::is_unrestricted)
    }

    /// Whether the user may log in with a password.
    pub(crate) fn accepts(&self, password: &[u8]) -> bool {
        let given = hash(password);
        // All are compared, so the time does not depend on which is right.
        let is_equal = |known: &Hash| constant_time_eq(known, &given);
        let is_right = self.passwords.iter().fold(false, |found, known| is_equal(known) | found);
        self.is_enabled && (self.needs_no_password || is_right)
    }

    /// Checks a call. If several selectors deny it, the denial is that of the selector that
    /// allows most of it.
    pub(crate) fn check(
        &self,
        names: &CommandNames,
        command: usize,
        args: Args<'_>,
    ) -> Result<(), Denial> {
        let mut call = Call::new(names, command, args);
        let needs_no_right = names.commands()[command].has(NO_AUTH);
        let mut worst = Denial::Command;
        for selector in &self.selectors {
            match selector.check(&mut call, needs_no_right) {
                Ok(()) => return Ok(()),
                Err(denial) => worst = worst.max(denial),
            }
        }
        Err(worst)
    }

    /// Whether a selector allows a call and the reading of all keys.
    pub(crate) fn may_read_all(
        &self,
        names: &CommandNames,
        command: usize,
        args: Args<'_>,
    ) -> bool {
        let mut call = Call::new(names, command, args);
        let mut selectors = self.selectors.iter();
        selectors
            .any(|selector| selector.may_read_all() && selector.check(&mut call, false).is_ok())
    }

    /// Whether a selector allows a channel, or a pattern of channels.
    pub(crate) fn allows_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.selectors.iter().any(|selector| selector.allows_channel(channel, is_pattern))
    }

    /// Flags, as rules.
    pub(crate) fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_enabled { "on" } else { "off" }];
        flags.extend(self.needs_no_password.then_some("nopass"));
        flags.push(match self.skips_sanitizing {
            true => "skip-sanitize-payload",
            false => "sanitize-payload",
        });
        flags
    }

    /// Hashes of the passwords, in hexadecimal.
    pub(crate) fn password_hashes(&self) -> impl ExactSizeIterator<Item = String> {
        self.passwords.iter().map(hex)
    }

    /// The user as a line of the file of users, without the line end.
    pub(crate) fn describe(&self) -> Vec<u8> {
        let mut parts = vec![b"user".to_vec(), self.name.clone()];
        parts.extend(self.flags().into_iter().map(|flag| flag.as_bytes().to_vec()));
        parts.extend(self.password_hashes().map(|hash| format!("#{hash}").into_bytes()));
        for (place, selector) in self.selectors.iter().enumerate() {
            let rules = selector.describe();
            parts.push(if place == 0 { rules } else { [b"(", &*rules, b")"].concat() });
        }
        parts.join(&b' ')
    }
}

/// The text of a denial. Without `names_object` it does not name the key or channel.
pub(crate) fn denial_text(
    names: &CommandNames,
    user: &User,
    (command, args): (usize, Args<'_>),
    denial: &Denial,
    names_object: bool,
) -> String {
    let user = user.shown_name();
    let (kind, object) = match denial {
        Denial::Command => {
            let called = names.name(names.called(command, args));
            return format!("User {user} has no permissions to run the '{called}' command");
        }
        Denial::Key(_, key) => ("key", key),
        Denial::Channel(_, channel) => ("channel", channel),
    };
    if names_object {
        let object = String::from_utf8_lossy(object);
        format!("User {user} has no permissions to access the '{object}' {kind}")
    } else {
        format!("No permissions to access a {kind}")
    }
}
