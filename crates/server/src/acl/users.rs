//! All users.
//!
//! In a replicated table the users are rows of the first group: [`Acl::changed`] and [`Acl::parse`]
//! make rows, and [`Acl::follow`] puts them in force. Until there are rows the node's own users
//! count. A node that joins has none before: nobody may log in there.
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
pub(crate) type UserMap = BTreeMap<Vec<u8>, Arc<User>>;

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
    /// The users of the options.
    own: UserMap,
    /// Nobody may log in, because the users of the cluster are not known yet.
    is_locked: AtomicBool,
    /// The users are those of rows.
    follows: AtomicBool,
}

/// The users that [`Acl::follow`] has changed.
pub(crate) struct FollowedChange {
    pub(crate) removed: Vec<Vec<u8>>,
    pub(crate) changed: Vec<Arc<User>>,
    /// What an operator wants to know.
    pub(crate) warnings: Vec<String>,
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
        let mut acl = Acl {
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
            own: UserMap::new(),
            is_locked: AtomicBool::new(false),
            follows: AtomicBool::new(false),
        };
        if acl.file.is_some() {
            acl.load()?;
        }
        acl.check_public(&acl.default_user())?;
        acl.own = acl.users.read().clone();
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
        let rules = check_change(name, words)?;
        let _changing = self.changing.lock();
        let allows_channels = self.allows_channels.load(Ordering::Relaxed);
        let user = self.changed(self.user(name).as_deref(), name, &rules, allows_channels)?;
        let user = Arc::new(user);
        self.users.write().insert(name.to_vec(), user.clone());
        self.publish(name == DEFAULT_USER);
        Ok(user)
    }

    /// A user after these rules, which is a new one without `known`.
    ///
    /// # Errors
    /// The error reply.
    pub(crate) fn changed(
        &self,
        known: Option<&User>,
        name: &[u8],
        rules: &[Vec<u8>],
        allows_channels: bool,
    ) -> Result<User, String> {
        let new = || User::new(&self.names, name, allows_channels);
        let mut user = known.map_or_else(new, User::clone);
        for rule in rules {
            rules::apply(&self.names, &mut user, rule, allows_channels).map_err(|error| {
                let (rule, text) = (shown(rule), error.text());
                format!("Error in ACL SETUSER modifier '{rule}': {text}")
            })?;
        }
        self.check_public(&user)?;
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

    /// The user of a line, as [`User::describe`] makes it.
    ///
    /// # Errors
    /// All mistakes, such as a command that this program does not know.
    pub(crate) fn parse(&self, line: &[u8]) -> Result<User, String> {
        let parsed = file::parse_line(line, &self.names, false);
        parsed.map_err(|mistakes| mistakes.join(". "))
    }

    /// The users of the options, as lines.
    pub(crate) fn own_lines(&self) -> Vec<Vec<u8>> {
        self.own.values().map(|user| user.describe()).collect()
    }

    /// Lets nobody log in before [`follow`](Self::follow) has put users in force.
    pub(crate) fn lock(&self) {
        let nobody = Arc::new(self.disabled_default());
        *self.users.write() = UserMap::from([(DEFAULT_USER.to_vec(), nobody)]);
        self.is_locked.store(true, Ordering::Release);
        self.publish(true);
    }

    /// Whether nobody may log in yet.
    pub(crate) fn is_locked(&self) -> bool {
        self.is_locked.load(Ordering::Acquire)
    }

    /// Whether the users are those of rows.
    pub(crate) fn follows(&self) -> bool {
        self.follows.load(Ordering::Acquire)
    }

    fn disabled_default(&self) -> User {
        User::new(&self.names, DEFAULT_USER, false)
    }

    /// Puts users in force as rows have them: lines by name, `None` for users that are removed or
    /// cannot be read. With `are_all` there are no others. A user that this program does not
    /// understand is none here, and the user `default` is off then; it is off, too, if it would
    /// open the server to other machines.
    pub(crate) fn follow(
        &self,
        rows: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
        are_all: bool,
    ) -> FollowedChange {
        let (mut removed, mut changed, mut warnings) = (Vec::new(), Vec::new(), Vec::new());
        let _changing = self.changing.lock();
        let has_default = rows.contains_key(DEFAULT_USER);
        if are_all {
            let is_gone = |name: &&Vec<u8>| !rows.contains_key(*name);
            removed.extend(self.users.read().keys().filter(is_gone).cloned());
        }
        for (name, line) in rows {
            let parsed = line.map(|line| {
                self.parse(&line).and_then(|user| self.check_public(&user).map(|()| user))
            });
            match parsed {
                Some(Ok(user)) if user.name == name => changed.push(Arc::new(user)),
                other => {
                    if let Some(Err(reason)) = other {
                        let name = String::from_utf8_lossy(&name);
                        warnings.push(format!(
                            "the user '{name}' of the cluster is off here: {reason}"
                        ));
                    }
                    removed.push(name);
                }
            }
        }
        let mut users = self.users.write();
        for name in &removed {
            users.remove(name);
        }
        users.extend(changed.iter().map(|user| (user.name.clone(), user.clone())));
        let off = || Arc::new(self.disabled_default());
        users.entry(DEFAULT_USER.to_vec()).or_insert_with(off);
        drop(users);
        removed.retain(|name| name != DEFAULT_USER);
        self.is_locked.store(false, Ordering::Release);
        self.follows.store(true, Ordering::Release);
        self.publish(has_default || are_all);
        FollowedChange { removed, changed, warnings }
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
        let _changing = self.changing.lock();
        let users = self.read_file()?;
        let is_kept = |name: &Vec<u8>| users.contains_key(name);
        let current = self.users.read();
        let removed = current.keys().filter(|name| !is_kept(name)).cloned().collect();
        drop(current);
        *self.users.write() = users;
        self.publish(true);
        Ok(removed)
    }

    /// The users of the file, which always have `default` among them.
    ///
    /// # Errors
    /// All mistakes of the file.
    pub(crate) fn read_file(&self) -> Result<UserMap, String> {
        let Some(path) = &self.file else { return Err(NO_FILE.to_owned()) };
        let allows_channels = self.allows_channels.load(Ordering::Relaxed);
        let mut users = file::read(path, &self.names, allows_channels)?;
        let initial = || self.initial_default.clone();
        users.entry(DEFAULT_USER.to_vec()).or_insert_with(initial);
        self.check_public(&users[DEFAULT_USER])?;
        Ok(users)
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

/// The rules of ACL SETUSER, each with the words of its selector.
///
/// # Errors
/// The error reply for a name or words that no user can have.
fn check_change<'a>(
    name: &[u8],
    words: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<Vec<u8>>, String> {
    if has_spaces(name) {
        return Err("Usernames can't contain spaces or null characters".to_owned());
    }
    rules::join_selectors(words)
}

/// The rules of ACL SETUSER for other nodes: with hashes in place of passwords.
///
/// # Errors
/// The error reply.
pub(crate) fn hashed_rules<'a>(
    name: &[u8],
    words: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<Vec<u8>>, String> {
    let mut rules = check_change(name, words)?;
    rules::hash_passwords(&mut rules);
    Ok(rules)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::command_index;

    fn rows<const N: usize>(
        lines: [(&str, Option<&str>); N],
    ) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
        let row = |(name, line): (&str, Option<&str>)| {
            (name.as_bytes().to_vec(), line.map(|line| line.as_bytes().to_vec()))
        };
        lines.map(row).into()
    }

    fn names(acl: &Acl) -> Vec<String> {
        acl.all().iter().map(|user| user.shown_name()).collect()
    }

    #[test]
    fn rows_replace_own_users_and_later_ones_change_some() {
        let acl = Acl::open(command_index(), None, None, false).unwrap();
        acl.set(b"own", [&b"on"[..], b"nopass"].into_iter()).unwrap();
        let default = "user default on nopass ~* &* +@all";
        let change = acl.follow(rows([("default", Some(default)), ("a", Some("user a on"))]), true);
        assert_eq!(
            (change.removed, names(&acl)),
            (vec![b"own".to_vec()], vec!["a".into(), "default".into()])
        );
        let before = acl.generation();
        let change = acl.follow(rows([("a", None), ("b", Some("user b on"))]), false);
        assert_eq!(
            (change.removed, names(&acl)),
            (vec![b"a".to_vec()], vec!["b".into(), "default".into()])
        );
        assert!(acl.generation() > before && acl.is_open() && acl.follows());
    }

    #[test]
    fn rows_that_cannot_be_understood_give_no_rights() {
        let acl = Acl::open(command_index(), None, None, false).unwrap();
        assert!(acl.is_open());
        for default in
            [None, Some("user default on nopass +command-of-the-future"), Some("user x on nopass")]
        {
            let of_other = Some("user bob on nopass +@all");
            acl.follow(
                rows([("default", Some("user default on nopass +@all")), ("bob", of_other)]),
                true,
            );
            assert!(acl.is_open() && acl.authenticate(b"bob", b"").is_some());
            acl.follow(rows([("default", default), ("bob", Some("user bob on (+x"))]), false);
            assert!(!acl.is_open() && !acl.default_user().is_unrestricted(), "{default:?}");
            assert!(acl.authenticate(b"bob", b"").is_none() && acl.user(b"bob").is_none());
        }
    }

    #[test]
    fn rows_never_open_a_server_to_other_machines() {
        let acl = Acl::open(command_index(), Some("pw"), None, true).unwrap();
        let line = "user default on nopass ~* &* +@all";
        let change = acl.follow(rows([("default", Some(line))]), true);
        assert!(!acl.is_open() && change.warnings.len() == 1);
    }

    #[test]
    fn nobody_logs_in_while_users_are_locked() {
        let acl = Acl::open(command_index(), Some("pw"), None, false).unwrap();
        assert!(acl.authenticate(DEFAULT_USER, b"pw").is_some());
        acl.lock();
        assert!(acl.is_locked() && !acl.is_open());
        assert!(acl.authenticate(DEFAULT_USER, b"pw").is_none());
        let line = acl.own_lines().remove(0);
        acl.follow(BTreeMap::from([(DEFAULT_USER.to_vec(), Some(line))]), true);
        assert!(!acl.is_locked() && acl.authenticate(DEFAULT_USER, b"pw").is_some());
    }

    #[test]
    fn passwords_are_hashed_before_other_nodes_get_the_rules() {
        let words = [&b"on"[..], b">secret", b"<old", b"(+get", b"~a)"];
        let rules = hashed_rules(b"a", words.into_iter()).unwrap();
        assert!(rules.iter().all(|rule| !rule.starts_with(b">") && !rule.starts_with(b"<")));
        assert_eq!(rules[3], b"(+get ~a)");
        let acl = Acl::open(command_index(), None, None, false).unwrap();
        let old = acl.changed(None, b"a", &[b">old".to_vec()], false).unwrap();
        let new = acl.changed(Some(&old), b"a", &rules, false).unwrap();
        assert!(new.accepts(b"secret") && !new.accepts(b"old"));
        let again = acl.parse(&new.describe()).unwrap();
        assert_eq!(again.describe(), new.describe());
    }
}
