//! The client's own connection: greeting, password, table, farewell.
//!
//! Source: the documentation of Redis's connection commands.

use std::sync::atomic::Ordering::Relaxed;

use super::failure::{NOT_AN_INTEGER, SYNTAX, words, wrong_arity};
use super::session::ReplyMode;
use super::{AT_ONCE, Command, Context, FAST, Failure, NO_AUTH, NO_KEYS, Outcome};
use crate::resp::{Args, Protocol, number};

pub(super) fn commands() -> Vec<Command> {
    let command = |name, arity, flags, handler, summary| {
        super::command("connection", name, arity, flags | FAST, NO_KEYS, handler, summary)
    };
    vec![
        command("ping", -1, 0, ping, "Answers, to show that the server lives."),
        command("echo", 2, 0, echo, "Returns its argument."),
        command("hello", -1, NO_AUTH, hello, "Chooses the protocol; may authenticate."),
        command("auth", -2, NO_AUTH, auth, "Authenticates."),
        command("select", 2, 0, select, "Chooses the table."),
        command("quit", -1, NO_AUTH | AT_ONCE, quit, "Closes the connection."),
        command("reset", 1, NO_AUTH | AT_ONCE, reset, "Makes the connection like new."),
    ]
}

fn ping(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match args.len() {
        1 => context.replies.raw(b"+PONG\r\n"),
        2 => context.replies.bulk(&args[1]),
        _ => return Err(wrong_arity("ping")),
    }
    Ok(())
}

fn echo(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    context.replies.bulk(&args[1]);
    Ok(())
}

/// Checks a password and lets the client in.
///
/// Without a password the one user there is, `default`, may have any, as in Redis: programs that
/// are given `redis://default:pw@host` send it to every server.
fn authenticate(context: &mut Context<'_>, user: &[u8], given: &[u8]) -> Outcome {
    let password = context.shared.options.password.as_ref();
    let is_right = password.is_none_or(|password| is_same(password.as_bytes(), given));
    if user != b"default" || !is_right {
        context.shared.metrics.rejected_passwords.fetch_add(1, Relaxed);
        return Err(words("WRONGPASS invalid username-password pair or user is disabled."));
    }
    context.session.is_authenticated = true;
    Ok(())
}

/// Compares in a time that does not tell where the first difference is.
pub(crate) fn is_same(secret: &[u8], given: &[u8]) -> bool {
    let differences = given.iter().enumerate().fold(0u8, |differences, (index, byte)| {
        // Of a secret that is shorter any byte will do: the lengths differ.
        differences | (byte ^ secret[index % secret.len().max(1)..].first().unwrap_or(&0))
    });
    differences == 0 && secret.len() == given.len()
}

fn auth(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match args.len() {
        2 if context.shared.options.password.is_none() => {
            return Err(words(
                "ERR AUTH <password> called without any password configured for the default user. \
                 Are you sure your configuration is correct?",
            ));
        }
        2 => authenticate(context, b"default", &args[1])?,
        3 => authenticate(context, &args[1], &args[2])?,
        _ => return Err(SYNTAX),
    }
    context.replies.ok();
    Ok(())
}

fn hello(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let protocol = match args.get(1) {
        None => context.replies.protocol,
        Some(version) => match number::parse_i64(version) {
            Some(2) => Protocol::Resp2,
            Some(3) => Protocol::Resp3,
            Some(_) => return Err(words("NOPROTO unsupported protocol version")),
            None => return Err(words("ERR Protocol version is not an integer or out of range")),
        },
    };
    let (mut rest, mut name) = (args.from(2), None);
    while let Some(word) = rest.get(0) {
        match (word.to_ascii_lowercase().as_slice(), rest.get(1), rest.get(2)) {
            (b"auth", Some(user), Some(password)) => {
                authenticate(context, user, password)?;
                rest = rest.from(3);
            }
            (b"setname", Some(given), _) => {
                name = Some(super::client::check_name(given)?);
                rest = rest.from(2);
            }
            _ => {
                let word = String::from_utf8_lossy(&word[..word.len().min(128)]);
                return Err(format!("ERR Syntax error in HELLO option '{word}'").into());
            }
        }
    }
    if !context.session.is_authenticated {
        return Err(words(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        ));
    }
    let client = context.session.client();
    if let Some(name) = name {
        client.names.lock().name = name;
    }
    let id = client.id;
    set_protocol(context, protocol);
    let replies = &mut *context.replies;
    replies.map(7);
    for (field, value) in [("server", "siltstone"), ("version", super::info::REDIS_VERSION)] {
        replies.bulk(field.as_bytes());
        replies.bulk(value.as_bytes());
    }
    replies.bulk(b"proto");
    replies.int(if protocol == Protocol::Resp3 { 3 } else { 2 });
    replies.bulk(b"id");
    replies.int(id as i64);
    for (field, value) in [("mode", "standalone"), ("role", "master")] {
        replies.bulk(field.as_bytes());
        replies.bulk(value.as_bytes());
    }
    replies.bulk(b"modules");
    replies.array(0);
    Ok(())
}

fn set_protocol(context: &mut Context<'_>, protocol: Protocol) {
    context.replies.protocol = protocol;
    context.session.client().is_resp3.store(protocol == Protocol::Resp3, Relaxed);
}

/// An argument as the index of a table.
fn table_index(context: &Context<'_>, text: &[u8]) -> Result<usize, Failure> {
    let index = integer(text)?;
    let tables = context.shared.databases.len();
    let index = usize::try_from(index).ok().filter(|index| *index < tables);
    index.ok_or(words("ERR DB index is out of range"))
}

fn select(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let table = table_index(context, &args[1])?;
    context.session.select(table);
    context.replies.ok();
    Ok(())
}

fn quit(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    context.session.is_closing = true;
    context.replies.ok();
    Ok(())
}

fn reset(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    context.session.transaction = None;
    context.session.unwatch(context.shared);
    context.session.select(0);
    context.session.reply = ReplyMode::On;
    context.session.is_authenticated = context.shared.options.password.is_none();
    context.session.client().names.lock().name.clear();
    set_protocol(context, Protocol::Resp2);
    context.replies.simple("RESET");
    Ok(())
}

/// Reads an integer argument.
pub(super) fn integer(text: &[u8]) -> Result<i64, Failure> {
    number::parse_i64(text).ok_or(NOT_AN_INTEGER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_compared_whole() {
        assert!(is_same(b"secret", b"secret"));
        for wrong in ["", "s", "secre", "secrets", "secretsecret", "Secret"] {
            assert!(!is_same(b"secret", wrong.as_bytes()), "{wrong}");
        }
    }
}
