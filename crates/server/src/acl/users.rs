//! All users.
//!
//! Invariant: the generation is incremented after a change is visible, so a connection that sees
//! the new generation sees the change.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use super::file;
use super::log::DenialLog;
use super::names::CommandNames;
use super::rules::{self, has_spaces};
use super::user::{DEFAULT_USER, User};
use crate::command::CommandIndex;

/// Users by name.
pub(super) type UserMap = BTreeMap<Vec<u8>, Arc<User>>;

/// All users, and what was denied to them.
pub(crate) struct Acl {
    pub(crate) names: CommandNames,
    /// Incremented by every change; never 0.
    generation: AtomicU64,
    /// Number of changes of the user `default`.
    default_changes: AtomicU64,
    users: RwLock<UserMap>,
    /// Held while users are changed, so that changes do not undo each other.
    changing: Mutex<()>,
    /// The user `default` of the options.
    initial_default: Arc<User>,
    /// New users may use all channels.
    pub(crate) allows_channels: AtomicBool,
    pub(crate) file: Option<PathBuf>,
    pub(crate) log: DenialLog,
    /// Other machines can reach the server: the user `default` must not be open.
    is_public: bool,
}

impl Acl {
    /// The users of a file, if there is one. The user `default` has the password unless the file
    /// names that user.
    ///
    /// # Errors
    /// What is wrong in the file. An address that other machines can reach requires that the user
    /// `default` has a password or is off.
    pub(crate) fn open(
        commands: &'static CommandIndex,
        password: Option<&str>,
        file: Option<PathBuf>,
        is_public: bool,
    ) -> Result<Self, String> {
        let names = CommandNames::new(commands);
        let initial_default = Arc::new(User::default_user(&names, password));
        let acl = Acl {
            names,
            generation: AtomicU64::new(1),
            default_changes: AtomicU64::new(0),
            users: RwLock::new(BTreeMap::from([(DEFAULT_USER.to_vec(), initial_default.clone())])),
            changing: Mutex::new(()),
            initial_default,
            allows_channels: AtomicBool::new(false),
            file,
            log: DenialLog::default(),
            is_public,
        };
        if acl.file.is_some() {
            acl.load()?;
        }
        acl.check_public(&acl.default_user())?;
        Ok(acl)
    }

    /// Number of changes so far, plus one.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The user with this name.
    pub(crate) fn user(&self, name: &[u8]) -> Option<Arc<User>> {
        self.users.read().get(name).cloned()
    }

    /// The user of connections that have not named another.
    pub(crate) fn default_user(&self) -> Arc<User> {
        self.user(DEFAULT_USER).unwrap_or_else(|| self.initial_default.clone())
    }

    /// All users by name.
    pub(crate) fn all(&self) -> Vec<Arc<User>> {
        self.users.read().values().cloned().collect()
    }

    /// The user with this name, if the password is right.
    pub(crate) fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        match self.user(name) {
            Some(user) => user.accepts(password).then_some(user),
            None => {
                // Takes as long as for a known user.
                let _ = self.initial_default.accepts(password);
                None
            }
        }
    }

    /// Whether connections that have not logged in may do something.
    pub(crate) fn is_open(&self) -> bool {
        self.default_user().is_open()
    }

    /// Creates or changes a user: all rules, or none. Returns the user.
    ///
    /// # Errors
    /// The error reply.
    pub(crate) fn set<'a>(
        &self,
        name: &[u8],
        words: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Arc<User>, String> {
        if has_spaces(name) {
            return Err("Usernames can't contain spaces or null characters".to_owned());
        }
        let rules = rules::join_selectors(words)?;
        let _changing = self.changing.lock();
        let allows_channels = self.allows_channels.load(Ordering::Relaxed);
        let mut user = match self.user(name) {
            Some(user) => User::clone(&user),
            None => User::new(&self.names, name, allows_channels),
        };
        for rule in &rules {
            rules::apply(&self.names, &mut user, rule, allows_channels).map_err(|error| {
                let (rule, text) = (shown(rule), error.text());
                format!("Error in ACL SETUSER modifier '{rule}': {text}")
            })?;
        }
        self.check_public(&user)?;
        let user = Arc::new(user);
        self.users.write().insert(name.to_vec(), user.clone());
        self.publish(name == DEFAULT_USER);
        Ok(user)
    }

    /// Makes a change known to connections.
    fn publish(&self, may_be_default: bool) {
        self.default_changes.fetch_add(may_be_default.into(), Ordering::Release);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Number of changes of the user `default`, or more.
    pub(crate) fn default_changes(&self) -> u64 {
        self.default_changes.load(Ordering::Acquire)
    }

    /// Refuses to open a server to other machines.
    fn check_public(&self, user: &User) -> Result<(), String> {
        if self.is_public && user.name == DEFAULT_USER && user.is_open() {
            return Err("other machines can reach the server, so the user default must have a \
                        password or be off"
                .to_owned());
        }
        Ok(())
    }

    /// Removes users. Returns those that existed.
    pub(crate) fn remove<'a>(&self, names: impl Iterator<Item = &'a [u8]>) -> Vec<Arc<User>> {
        let _changing = self.changing.lock();
        let mut users = self.users.write();
        let removed: Vec<_> = names.filter_map(|name| users.remove(name)).collect();
        drop(users);
        self.publish(false);
        removed
    }

    /// Replaces all users by those of the file, or none. Returns the names of the removed users.
    ///
    /// # Errors
    /// All mistakes of the file.
    pub(crate) fn load(&self) -> Result<Vec<Vec<u8>>, String> {
        let Some(path) = &self.file else { return Err(NO_FILE.to_owned()) };
        let _changing = self.changing.lock();
        let allows_channels = self.allows_channels.load(Ordering::Relaxed);
        let mut users = file::read(path, &self.names, allows_channels)?;
        let initial = || self.initial_default.clone();
        users.entry(DEFAULT_USER.to_vec()).or_insert_with(initial);
        self.check_public(&users[DEFAULT_USER])?;
        let is_kept = |name: &Vec<u8>| users.contains_key(name);
        let current = self.users.read();
        let removed = current.keys().filter(|name| !is_kept(name)).cloned().collect();
        drop(current);
        *self.users.write() = users;
        self.publish(true);
        Ok(removed)
    }

    /// Writes all users to the file.
    ///
    /// # Errors
    /// The error reply.
    pub(crate) fn save(&self) -> Result<(), String> {
        let Some(path) = &self.file else { return Err(NO_FILE.to_owned()) };
        let _changing = self.changing.lock();
        file::write(path, &self.all()).map_err(|error| {
            format!("There was an error trying to save the ACLs in '{}': {error}", path.display())
        })
    }
}

/// Error reply without a file of users.
const NO_FILE: &str = "This Redis instance is not configured to use an ACL file. Start the server \
                       with --acl-file to load users from a file and to save them";

/// A rule for a message: without the password that it may have.
fn shown(rule: &[u8]) -> String {
    match rule {
        [sign @ (b'>' | b'<' | b'#' | b'!'), ..] => format!("{}(redacted)", char::from(*sign)),
        _ => String::from_utf8_lossy(&rule[..rule.len().min(128)]).into_owned(),
    }
}
