//! CLIENT: what clients say of themselves and see of one another.
//!
//! Source: the documentation of Redis's CLIENT commands.

use super::failure::{Failure, SYNTAX, unknown_subcommand, words, wrong_arity};
use super::session::ReplyMode;
use super::{Command, Context, NO_KEYS, Outcome, connection};
use crate::resp::Args;

pub(super) fn commands() -> Vec<Command> {
    vec![super::command(
        "connection",
        "client",
        -2,
        0,
        NO_KEYS,
        client,
        "Names this client; lists and closes clients.",
    )]
}

fn client(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match (args[1].to_ascii_lowercase().as_slice(), args.len()) {
        (b"id", 2) => {
            let id = context.session.client().id;
            context.replies.int(id as i64);
        }
        (b"getname", 2) => {
            let name = context.session.client().names.lock().name.clone();
            context.replies.bulk_or_null((!name.is_empty()).then_some(name.as_bytes()));
        }
        (b"setname", 3) => {
            context.session.client().names.lock().name = check_name(&args[2])?;
            context.replies.ok();
        }
        (b"setinfo", 4) => set_info(context, args)?,
        (b"info", 2) => {
            let mut text = String::new();
            context.session.client().describe(&mut text);
            context.replies.verbatim(&text);
        }
        (b"list", _) => {
            let mut text = String::new();
            for client in context.shared.clients.all() {
                client.describe(&mut text);
            }
            context.replies.verbatim(&text);
        }
        (b"reply", 3) => reply(context, &args[2])?,
        (b"kill", 3..) => kill(context, args)?,
        (b"no-evict" | b"no-touch", 3) => context.replies.ok(),
        (b"help", 2) => {
            context.replies.array(1);
            context.replies.simple(
                "CLIENT ID|GETNAME|SETNAME name|SETINFO option value|INFO|LIST|REPLY ON|OFF|SKIP|\
                 KILL address|KILL ID id",
            );
        }
        (
            b"id" | b"getname" | b"setname" | b"setinfo" | b"info" | b"reply" | b"kill"
            | b"no-evict" | b"no-touch",
            _,
        ) => {
            let name = String::from_utf8_lossy(&args[1]).to_lowercase();
            return Err(wrong_arity(&format!("client|{name}")));
        }
        _ => return Err(unknown_subcommand("CLIENT", &args[1])),
    }
    Ok(())
}

/// Checks what a client wants to be called: it must fit into a line of CLIENT LIST.
pub(super) fn check_name(name: &[u8]) -> Result<String, Failure> {
    const MAX_NAME_BYTES: usize = 1024;
    let is_plain = name.iter().all(|byte| (b'!'..=b'~').contains(byte));
    if !is_plain || name.len() > MAX_NAME_BYTES {
        return Err(words(
            "ERR Client names cannot contain spaces, newlines or special characters.",
        ));
    }
    Ok(String::from_utf8_lossy(name).into_owned())
}

fn set_info(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let value = check_name(&args[3])?;
    let mut names = context.session.client().names.lock();
    match args[2].to_ascii_lowercase().as_slice() {
        b"lib-name" => names.library = value,
        b"lib-ver" => names.library_version = value,
        _ => {
            let option = String::from_utf8_lossy(&args[2][..args[2].len().min(128)]);
            return Err(format!("ERR Unrecognized option '{option}'").into());
        }
    }
    drop(names);
    context.replies.ok();
    Ok(())
}

fn reply(context: &mut Context<'_>, mode: &[u8]) -> Outcome {
    context.session.reply = match mode.to_ascii_lowercase().as_slice() {
        b"on" => {
            context.replies.ok();
            ReplyMode::On
        }
        b"off" => ReplyMode::Off,
        // Who wants no replies at all wants none to the one after the next.
        b"skip" if context.session.reply == ReplyMode::Off => ReplyMode::Off,
        b"skip" => ReplyMode::SkipNext,
        _ => return Err(SYNTAX),
    };
    Ok(())
}

fn kill(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let me = context.session.client().id;
    let clients = context.shared.clients.all();
    let kill = |client: &crate::clients::Client| client.kill();
    if args.len() == 3 {
        let found = clients.iter().find(|c| c.peer.to_string().as_bytes() == &args[2]);
        kill(found.ok_or(words("ERR No such client"))?);
        context.replies.ok();
        return Ok(());
    }
    let (mut id, mut address, mut skip_me) = (None, None, true);
    if args.len().is_multiple_of(2) {
        let options = args.from(2);
        for (word, value) in options.iter().step_by(2).zip(args.from(3).iter().step_by(2)) {
            match word.to_ascii_lowercase().as_slice() {
                b"id" => id = Some(connection::integer(value)?),
                b"addr" => address = Some(value),
                b"skipme" => skip_me = !value.eq_ignore_ascii_case(b"no"),
                _ => return Err(SYNTAX),
            }
        }
    } else {
        return Err(SYNTAX);
    }
    let chosen = clients.iter().filter(|client| {
        id.is_none_or(|id| client.id as i64 == id)
            && address.is_none_or(|address| client.peer.to_string().as_bytes() == address)
            && !(skip_me && client.id == me)
    });
    context.replies.count(chosen.inspect(|client| kill(client)).count());
    Ok(())
}
