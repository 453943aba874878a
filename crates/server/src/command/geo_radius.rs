//! GEORADIUS and GEORADIUSBYMEMBER, the older forms of GEOSEARCH and GEOSEARCHSTORE.
//!
//! Source: the documentation of Redis's geospatial commands; replies of Redis 7.2.

use super::context::Context;
use super::definition::{KeyOption, KeysTaken, ONE_KEY, READ, WRITE};
use super::elements::is;
use super::entry::{self, Command};
use super::failure::{Failure, Outcome, reply_error};
use super::geo::{Search, point};
use crate::resp::Args;

pub(super) fn commands() -> Vec<Command> {
    const fn store(from: usize) -> KeyOption {
        let names = &["store", "storedist"];
        KeyOption { from, names, others: &[("count", 1)], takes: KeysTaken::One }
    }
    let command = |name, arity, flags, handler, summary| {
        entry::command("geo", name, arity, flags, ONE_KEY, handler, summary)
    };
    vec![
        command("georadius", -6, WRITE, georadius, "Returns or stores members around a point.")
            .with_key_option(store(6)),
        command("georadius_ro", -6, READ, georadius_ro, "Returns members around a point."),
        command(
            "georadiusbymember",
            -5,
            WRITE,
            georadiusbymember,
            "Returns or stores members around a member.",
        )
        .with_key_option(store(5)),
        command(
            "georadiusbymember_ro",
            -5,
            READ,
            georadiusbymember_ro,
            "Returns members around a member.",
        ),
    ]
}

fn georadius(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    around_point(context, args, true)
}

fn georadius_ro(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    around_point(context, args, false)
}

fn georadiusbymember(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    around_member(context, args, true)
}

fn georadiusbymember_ro(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    around_member(context, args, false)
}

fn around_point(context: &mut Context<'_>, args: Args<'_>, may_store: bool) -> Outcome {
    let mut search = Search::around_point(point(&args[2], &args[3])?);
    search.set_radius(&args[4], &args[5])?;
    run(context, (&args[1], args.from(6)), search, may_store)
}

fn around_member(context: &mut Context<'_>, args: Args<'_>, may_store: bool) -> Outcome {
    let mut search = Search::around_member(&args[2]);
    search.set_radius(&args[3], &args[4])?;
    run(context, (&args[1], args.from(5)), search, may_store)
}

fn run<'a>(
    context: &mut Context<'_>,
    (key, options): (&[u8], Args<'a>),
    mut search: Search<'a>,
    may_store: bool,
) -> Outcome {
    let (mut at, mut target) = (0, None);
    while at < options.len() {
        let word = &options[at];
        let stores_distance = is(word, "storedist");
        if may_store && (stores_distance || is(word, "store")) && at + 1 < options.len() {
            target = options.get(at + 1);
            search.stores_distance = stores_distance;
            at += 2;
        } else {
            at += search.parse_option(options.from(at))?;
        }
    }
    if target.is_some() && search.has_extras() {
        return Err(INCOMPATIBLE);
    }
    search.finish()?;
    match target {
        None => search.reply_from(context, key),
        Some(target) => search.store(context, key, target),
    }
}

const INCOMPATIBLE: Failure = reply_error(
    "ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options",
);
