//! Changes a user by rules.
//!
//! | rule | effect |
//! | --- | --- |
//! | `on`, `off` | may log in, or not |
//! | `>password`, `#hash` | adds a password |
//! | `<password`, `!hash` | removes one |
//! | `nopass`, `resetpass` | any password is right; no password is right |
//! | `+get`, `-get`, `+config\|get` | allows or forbids a command or subcommand |
//! | `+@read`, `-@read`, `+@all` | the commands of a category, or all |
//! | `+select\|0` | a command with this first argument only |
//! | `~app:*`, `%R~app:*`, `%W~app:*`, `allkeys`, `resetkeys` | keys, keys to read, keys to write |
//! | `&news.*`, `allchannels`, `resetchannels` | channels |
//! | `(+get ~shared:*)`, `clearselectors` | a selector beside the user's own rules |
//! | `reset` | as a new user |

use super::categories;
use super::key_access::{KeyAccess, READS, WRITES};
use super::names::CommandNames;
use super::selector::{ChannelPattern, KeyPattern, Selector};
use super::user::{Hash, User, hash, hex};

/// A mistake in a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RuleError {
    Syntax,
    UnknownCommand,
    KeyAfterAll,
    ChannelAfterAll,
    UnknownPassword,
    InvalidHash,
    SubcommandArgument,
}

impl RuleError {
    pub(super) fn text(self) -> &'static str {
        match self {
            RuleError::Syntax => "Syntax error",
            RuleError::UnknownCommand => "Unknown command or category name in ACL",
            RuleError::KeyAfterAll => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and \
                 does not have any effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            RuleError::ChannelAfterAll => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and \
                 does not have any effect. Try 'resetchannels' to start with an empty list of \
                 channels"
            }
            RuleError::UnknownPassword => {
                "The password you are trying to remove from the user does not exist"
            }
            RuleError::InvalidHash => {
                "The password hash must be exactly 64 characters and contain only lowercase \
                 hexadecimal characters"
            }
            RuleError::SubcommandArgument => "Allowing first-arg of a subcommand is not supported",
        }
    }
}

/// Joins rules that begin with a parenthesis with those behind them, up to the closing one.
///
/// # Errors
/// The error reply if a parenthesis is not closed.
pub(super) fn join_selectors<'a>(
    words: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<Vec<u8>>, String> {
    let mut rules = Vec::new();
    let mut open: Option<(&[u8], Vec<u8>)> = None;
    for word in words {
        match &mut open {
            None if word.starts_with(b"(") && !word.ends_with(b")") => {
                open = Some((word, word.to_vec()));
            }
            None => rules.push(word.to_vec()),
            Some((_, rule)) => {
                rule.push(b' ');
                rule.extend_from_slice(word);
                if word.ends_with(b")") {
                    rules.extend(open.take().map(|(_, rule)| rule));
                }
            }
        }
    }
    match open {
        None => Ok(rules),
        Some((first, _)) => {
            let first = String::from_utf8_lossy(first);
            Err(format!("Unmatched parenthesis in acl selector starting at '{first}'."))
        }
    }
}

/// Rules that add or remove a password as those that add or remove its hash.
pub(super) fn hash_passwords(rules: &mut [Vec<u8>]) {
    for rule in rules {
        let sign = match rule.first() {
            Some(b'>') => b'#',
            Some(b'<') => b'!',
            _ => continue,
        };
        *rule = [&[sign], hex(&hash(&rule[1..])).as_bytes()].concat();
    }
}

/// Applies one rule. `allows_channels`: new users may use all channels.
pub(super) fn apply(
    names: &CommandNames,
    user: &mut User,
    rule: &[u8],
    allows_channels: bool,
) -> Result<(), RuleError> {
    match (rule.to_ascii_lowercase().as_slice(), rule) {
        (b"", _) => {}
        (b"on", _) => user.is_enabled = true,
        (b"off", _) => user.is_enabled = false,
        (b"skip-sanitize-payload", _) => user.skips_sanitizing = true,
        (b"sanitize-payload", _) => user.skips_sanitizing = false,
        (b"nopass", _) => {
            user.needs_no_password = true;
            user.passwords.clear();
        }
        (b"resetpass", _) => {
            user.needs_no_password = false;
            user.passwords.clear();
        }
        (b"clearselectors", _) => user.selectors.truncate(1),
        (b"reset", _) => *user = User::new(names, &user.name, allows_channels),
        (_, [b'>', password @ ..]) => add_password(user, hash(password)),
        (_, [b'#', text @ ..]) => add_password(user, parse_hash(text)?),
        (_, [b'<', password @ ..]) => remove_password(user, &hash(password))?,
        (_, [b'!', text @ ..]) => remove_password(user, &parse_hash(text)?)?,
        (_, [b'(', inner @ .., b')']) => {
            let mut selector = Selector::new(names, allows_channels);
            let words = inner.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            for word in words {
                apply_to_selector(names, &mut selector, word)?;
            }
            user.selectors.push(selector);
        }
        _ => apply_to_selector(names, &mut user.selectors[0], rule)?,
    }
    Ok(())
}

fn add_password(user: &mut User, hash: Hash) {
    if !user.passwords.contains(&hash) {
        user.passwords.push(hash);
    }
    user.needs_no_password = false;
}

fn remove_password(user: &mut User, hash: &Hash) -> Result<(), RuleError> {
    let found = user.passwords.iter().position(|known| known == hash);
    user.passwords.remove(found.ok_or(RuleError::UnknownPassword)?);
    Ok(())
}

fn parse_hash(text: &[u8]) -> Result<Hash, RuleError> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        _ => Err(RuleError::InvalidHash),
    };
    let mut hash = Hash::default();
    if text.len() != 2 * hash.len() {
        return Err(RuleError::InvalidHash);
    }
    for (byte, digits) in hash.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(digits[0])? << 4 | digit(digits[1])?;
    }
    Ok(hash)
}

fn apply_to_selector(
    names: &CommandNames,
    selector: &mut Selector,
    rule: &[u8],
) -> Result<(), RuleError> {
    match (rule.to_ascii_lowercase().as_slice(), rule) {
        (b"allkeys" | b"~*", _) => selector.keys = None,
        (b"resetkeys", _) => selector.keys = Some(Vec::new()),
        (b"allchannels" | b"&*", _) => selector.channels = None,
        (b"resetchannels", _) => selector.channels = Some(Vec::new()),
        (b"allcommands" | b"+@all", _) => selector.commands.set_all(true),
        (b"nocommands" | b"-@all", _) => selector.commands.set_all(false),
        (_, [b'~', pattern @ ..]) => add_keys(selector, pattern, READS | WRITES)?,
        (_, [b'%', rest @ ..]) => {
            let (access, pattern) = parse_access(rest)?;
            add_keys(selector, pattern, access)?;
        }
        (_, [b'&', pattern @ ..]) => {
            let channels = selector.channels.as_mut().ok_or(RuleError::ChannelAfterAll)?;
            check_pattern(pattern)?;
            if !channels.iter().any(|known| known.text == pattern) {
                channels.push(ChannelPattern::new(pattern));
            }
        }
        (_, [sign @ (b'+' | b'-'), b'@', name @ ..]) => {
            let category = categories::by_name(name).ok_or(RuleError::UnknownCommand)?;
            let is_allowed = *sign == b'+';
            selector.commands.record(is_allowed, &format!("@{}", String::from_utf8_lossy(name)));
            for number in names.in_category(category) {
                selector.commands.set(names, number, is_allowed);
            }
        }
        (_, [b'+', name @ ..]) => allow(names, selector, name)?,
        (_, [b'-', name @ ..]) => {
            let number = names.find(name).ok_or(RuleError::UnknownCommand)?;
            selector.commands.set(names, number, false);
            selector.commands.record(false, names.name(number));
        }
        _ => return Err(RuleError::Syntax),
    }
    Ok(())
}

/// Allows a command, a subcommand, or a command with a first argument.
fn allow(names: &CommandNames, selector: &mut Selector, name: &[u8]) -> Result<(), RuleError> {
    if let Some(number) = names.find(name) {
        selector.commands.set(names, number, true);
        selector.commands.record(true, names.name(number));
        return Ok(());
    }
    let bar = name.iter().rposition(|byte| *byte == b'|').ok_or(RuleError::UnknownCommand)?;
    let (command, first_arg) = (&name[..bar], &name[bar + 1..]);
    let number = names.find(command).ok_or(RuleError::UnknownCommand)?;
    if names.is_subcommand(number) {
        return Err(RuleError::SubcommandArgument);
    }
    if first_arg.is_empty() {
        return Err(RuleError::Syntax);
    }
    if !names.subcommands(number).is_empty() {
        return Err(RuleError::UnknownCommand);
    }
    let first_args = selector.commands.first_args.entry(number).or_default();
    first_args.insert(first_arg.to_ascii_lowercase());
    selector.commands.record(true, &String::from_utf8_lossy(name));
    Ok(())
}

/// The letters before `~`, and the pattern behind it.
fn parse_access(rule: &[u8]) -> Result<(KeyAccess, &[u8]), RuleError> {
    let mut access = 0;
    for (place, byte) in rule.iter().enumerate() {
        let letter = match byte.to_ascii_uppercase() {
            b'R' => READS,
            b'W' => WRITES,
            b'~' if access != 0 => return Ok((access, &rule[place + 1..])),
            _ => return Err(RuleError::Syntax),
        };
        if access & letter != 0 {
            return Err(RuleError::Syntax);
        }
        access |= letter;
    }
    Err(RuleError::Syntax)
}

fn add_keys(selector: &mut Selector, pattern: &[u8], access: KeyAccess) -> Result<(), RuleError> {
    let keys = selector.keys.as_mut().ok_or(RuleError::KeyAfterAll)?;
    check_pattern(pattern)?;
    match keys.iter_mut().find(|known| known.text == pattern) {
        Some(known) => known.access |= access,
        None => keys.push(KeyPattern::new(pattern, access)),
    }
    Ok(())
}

/// A pattern must be one word of the file of users.
fn check_pattern(pattern: &[u8]) -> Result<(), RuleError> {
    if has_spaces(pattern) { Err(RuleError::Syntax) } else { Ok(()) }
}

/// Whether a name or pattern has spaces or null characters.
pub(super) fn has_spaces(text: &[u8]) -> bool {
    // The vertical tab is a space in C.
    text.iter().any(|byte| byte.is_ascii_whitespace() || matches!(byte, 0 | 0x0b))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::command::command_index;
    use crate::resp::{Args, Span};

    fn rule() -> impl Strategy<Value = String> {
        let fixed = [
            "on",
            "off",
            "nopass",
            "resetpass",
            ">pw",
            ">other",
            "<pw",
            "+@all",
            "-@all",
            "+@read",
            "-@write",
            "+@string",
            "-@fast",
            "+get",
            "-get",
            "+config",
            "-config|set",
            "+client|id",
            "+select|0",
            "+select|1",
            "-select",
            "allkeys",
            "resetkeys",
            "~a*",
            "%R~a*",
            "%W~a*",
            "%RW~b",
            "allchannels",
            "resetchannels",
            "&n*",
            "clearselectors",
            "reset",
            "(+get ~c)",
            "(+@read %R~d &m)",
            "()",
            "+nonsense",
            "%~a",
            "skip-sanitize-payload",
        ];
        prop::sample::select(fixed.to_vec()).prop_map(str::to_owned)
    }

    fn user(names: &CommandNames, words: &str) -> User {
        let mut user = User::new(names, b"u", false);
        for rule in join_selectors(words.split(' ').map(str::as_bytes)).unwrap() {
            // Wrong rules change nothing.
            let before = user.describe();
            if apply(names, &mut user, &rule, false).is_err() {
                assert_eq!(user.describe(), before);
            }
        }
        user
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// The line of a user, as it is saved, makes an equal user.
        #[test]
        fn described_user_has_the_same_rights(rules in prop::collection::vec(rule(), 0..12)) {
            let names = CommandNames::new(command_index());
            let first = user(&names, &rules.join(" "));
            let line = String::from_utf8(first.describe()).unwrap();
            let rules = line.strip_prefix("user u ").unwrap();
            let second = user(&names, rules);
            prop_assert_eq!(&line, &String::from_utf8(second.describe()).unwrap());
            prop_assert_eq!(first.is_unrestricted() && !line.contains("-@"), {
                second.is_unrestricted() && !line.contains("-@")
            });
            for number in 0..names.commands().all().len() {
                let word = names.name(number).as_bytes().to_vec();
                let bytes = [&*word, b"ax"].concat();
                let spans = [
                    Span { start: 0, end: word.len() },
                    Span { start: word.len(), end: bytes.len() },
                ];
                let args = Args::new(&bytes, &spans);
                let [first, second] = [&first, &second].map(|u| u.check(&names, number, args));
                prop_assert_eq!(first, second, "{}: {}", line, names.name(number));
            }
        }
    }
}
