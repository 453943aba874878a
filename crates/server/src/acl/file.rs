//! The file of users, in Redis's format: one user per line, as ACL LIST shows it.
//!
//! ```text
//! user alice on #2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90 ~app:* &* +@all
//! user default off sanitize-payload resetchannels -@all
//! ```
//!
//! Blank lines are allowed, comments are not, since a saved file would lose them. A file with
//! mistakes is refused, and all its mistakes are reported.

use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use super::names::CommandNames;
use super::rules::{self, RuleError, has_spaces};
use super::user::User;
use super::users::UserMap;
use crate::replace_file::replace_file;

/// Mode of a new file. It has the hashes of passwords.
const NEW_FILE_MODE: u32 = 0o600;

/// Reads all users of a file.
///
/// # Errors
/// All mistakes of the file, in one line.
pub(super) fn read(
    path: &Path,
    names: &CommandNames,
    allows_channels: bool,
) -> Result<UserMap, String> {
    let shown = path.display();
    let bytes = fs::read(path)
        .map_err(|error| format!("Error loading ACLs, opening file '{shown}': {error}"))?;
    let (mut users, mut mistakes) = (UserMap::new(), String::new());
    for (place, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match parse_line(line, names, allows_channels) {
            Ok(user) if users.contains_key(&user.name) => {
                let (name, number) = (user.shown_name(), place + 1);
                mistakes += &format!("WARNING: Duplicate user '{name}' found on line {number}. ");
            }
            Ok(user) => {
                users.insert(user.name.clone(), Arc::new(user));
            }
            Err(found) => {
                for mistake in found {
                    mistakes += &format!("{shown}:{}: {mistake}. ", place + 1);
                }
            }
        }
    }
    if mistakes.is_empty() {
        return Ok(users);
    }
    Err(format!(
        "{mistakes}WARNING: ACL errors detected, no change to the previously active ACL rules was \
         performed"
    ))
}

/// Parses the line of a user.
///
/// # Errors
/// All mistakes.
pub(super) fn parse_line(
    line: &[u8],
    names: &CommandNames,
    allows_channels: bool,
) -> Result<User, Vec<String>> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let (Some(b"user"), Some(name)) = (words.next(), words.next()) else {
        return Err(vec!["should start with user keyword followed by the username".to_owned()]);
    };
    if has_spaces(name) {
        let name = String::from_utf8_lossy(name);
        return Err(vec![format!("username '{name}' contains invalid characters")]);
    }
    let rules = rules::join_selectors(words)
        .map_err(|_| vec!["Unmatched parenthesis in selector definition".to_owned()])?;
    let (mut user, mut mistakes) = (User::new(names, name, allows_channels), Vec::new());
    for rule in rules {
        match rules::apply(names, &mut user, &rule, allows_channels) {
            Ok(()) => {}
            Err(error @ RuleError::UnknownCommand) => {
                let rule = String::from_utf8_lossy(&rule);
                mistakes.push(format!("Error in applying operation '{rule}': {}", error.text()));
            }
            // The rule may be a password.
            Err(error) => mistakes.push(error.text().to_owned()),
        }
    }
    if mistakes.is_empty() { Ok(user) } else { Err(mistakes) }
}

/// Replaces a file.
pub(super) fn write(path: &Path, users: &[Arc<User>]) -> io::Result<()> {
    let lines: Vec<u8> =
        users.iter().flat_map(|user| [user.describe(), b"\n".to_vec()].concat()).collect();
    replace_file(path, &lines, NEW_FILE_MODE)
}

#[cfg(test)]
mod tests {
    use siltstone_testkit::TestRng;

    use super::*;
    use crate::command::command_index;

    /// Lines of a file come from operators, rules from clients; those of rows from other nodes.
    #[test]
    fn random_lines_are_refused_or_describe_the_same_user() {
        const WORDS: [&str; 34] = [
            "on",
            "off",
            "nopass",
            "resetpass",
            ">pw",
            "<pw",
            "#",
            "!",
            "~",
            "~a*",
            "%R~b",
            "%RW~",
            "%~x",
            "allkeys",
            "resetkeys",
            "&c",
            "&",
            "allchannels",
            "resetchannels",
            "+@all",
            "-@all",
            "+@read",
            "-@",
            "+get",
            "+config|get",
            "-client|",
            "+select|0",
            "+",
            "(",
            ")",
            "(+get ~x)",
            "(+@all %R~a &n)",
            "clearselectors",
            "reset",
        ];
        let names = CommandNames::new(command_index());
        let (mut rng, mut users) = (TestRng::new(1), 0);
        for step in 0..20_000 {
            let mut line = b"user u".to_vec();
            for _ in 0..rng.below(8) {
                line.extend(b" ");
                match rng.below(12) {
                    0 => {
                        let len = rng.index(6);
                        line.extend(rng.bytes(len));
                    }
                    1 => {
                        let at = rng.index(line.len());
                        line[at] = rng.draw() as u8;
                    }
                    _ => line.extend(rng.pick(&WORDS).bytes()),
                }
            }
            let Ok(user) = parse_line(&line, &names, rng.one_in(2)) else { continue };
            users += 1;
            let described = user.describe();
            let again = parse_line(&described, &names, rng.one_in(2)).unwrap_or_else(|mistakes| {
                panic!("step {step}: {}: {mistakes:?}", described.escape_ascii())
            });
            assert_eq!(again.describe(), described, "step {step}: {}", line.escape_ascii());
        }
        assert!(users > 1000, "only {users} users");
    }
}
