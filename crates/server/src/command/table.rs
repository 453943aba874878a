//! The command table: every command of every module, sorted by name.
//!
//! The only file that knows all handlers. Handlers never call it: what they need of it is handed to
//! them in the [`Context`](super::context::Context).

use std::sync::LazyLock;

use super::context::Handler;
use super::entry::Command;
use super::index::{CommandIndex, pack};
use super::{
    acl, admin, bitfield, bitmaps, blocking, client, cluster, config, connection, databases, dump,
    expiry, functions, geo, geo_radius, hash_expiry, hashes, history, hyperloglog, info,
    introspect, keys, latency, lcs, lists, memory, migrate, modules, numbers, pubsub, ranges, scan,
    scripts, sets, slow_log, sort, sorted_set_algebra, sorted_set_ranges, sorted_sets,
    stream_groups, stream_info, stream_pending, stream_reads, streams, strings, transactions,
};

/// All commands.
pub(super) struct Table {
    pub(super) index: CommandIndex,
    /// Handlers by command number.
    pub(super) handlers: Vec<Handler>,
    /// Number of SET, which has a fast path.
    pub(super) set: usize,
}

/// The definitions of all commands.
pub(crate) fn command_index() -> &'static CommandIndex {
    &TABLE.index
}

pub(super) static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let families = [
        acl::commands(),
        admin::commands(),
        client::commands(),
        cluster::commands(),
        config::commands(),
        connection::commands(),
        databases::commands(),
        dump::commands(),
        expiry::commands(),
        info::commands(),
        introspect::commands(),
        keys::commands(),
        latency::commands(),
        memory::commands(),
        migrate::commands(),
        modules::commands(),
        numbers::commands(),
        pubsub::commands(),
        ranges::commands(),
        scan::commands(),
        scripts::commands(),
        slow_log::commands(),
        strings::commands(),
        bitfield::commands(),
        bitmaps::commands(),
        blocking::commands(),
        functions::commands(),
        geo::commands(),
        geo_radius::commands(),
        hashes::commands(),
        hash_expiry::commands(),
        hyperloglog::commands(),
        lists::commands(),
        lcs::commands(),
        sort::commands(),
        sets::commands(),
        sorted_sets::commands(),
        sorted_set_ranges::commands(),
        sorted_set_algebra::commands(),
        streams::commands(),
        stream_reads::commands(),
        stream_groups::commands(),
        stream_pending::commands(),
        stream_info::commands(),
        history::commands(),
        transactions::commands(),
    ];
    let mut commands: Vec<Command> = families.into_iter().flatten().collect();
    commands.sort_by_key(|command| pack(command.definition.name.as_bytes()));
    let is_set = |command: &Command| command.definition.name == "set";
    let set = commands.iter().position(is_set).unwrap_or_default();
    let (definitions, handlers) =
        commands.into_iter().map(|command| (command.definition, command.handler)).unzip();
    Table { index: CommandIndex::new(definitions), handlers, set }
});

#[cfg(test)]
mod tests {
    use super::super::key_flags;
    use super::*;

    #[test]
    fn rule_of_key_flags_names_commands_with_keys_and_each_once() {
        for rules in [&key_flags::FIRST[..], &key_flags::FURTHER] {
            let names: Vec<&str> = rules.iter().flat_map(|(_, names)| names.to_vec()).collect();
            for (place, name) in names.iter().enumerate() {
                let number = command_index().find(name.as_bytes()).expect(name);
                let keys = command_index()[number].keys;
                assert!(keys.first + keys.count_at > 0 || keys.option.is_some(), "{name}");
                assert!(!names[..place].contains(name), "{name} has two rules");
            }
        }
    }

    #[test]
    fn every_command_is_found_by_its_name_in_any_case() {
        let index = command_index();
        let packed = index.all().iter().map(|command| pack(command.name.as_bytes()));
        let packed: Vec<_> = packed.map(|name| name.expect("no name is too long")).collect();
        assert!(packed.is_sorted_by(|a, b| a < b), "a name is duplicated");
        for (number, command) in index.all().iter().enumerate() {
            assert_eq!(command.name, command.name.to_lowercase());
            assert_eq!(index.find(command.name.as_bytes()), Some(number));
            assert_eq!(index.find(command.name.to_uppercase().as_bytes()), Some(number));
        }
        for unknown in ["", "ge", "gett", "get\0", "a name that is much too long"] {
            assert_eq!(index.find(unknown.as_bytes()), None, "{unknown}");
        }
        assert_eq!(index[TABLE.set].name, "set");
    }
}
