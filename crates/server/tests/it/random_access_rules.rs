//! Random rules of users, and calls that they allow or not: as in Redis, which must be installed.

use siltstone_testkit::TestRng;

use crate::support::{Client, Peer, TestServer};

/// Rules of a user, as words.
fn draw_rules(rng: &mut TestRng) -> String {
    const RULES: [&str; 52] = [
        "+@all",
        "-@all",
        "+@read",
        "-@read",
        "+@write",
        "-@write",
        "+@string",
        "-@string",
        "+@hash",
        "+@fast",
        "-@fast",
        "+@slow",
        "-@slow",
        "+@dangerous",
        "-@dangerous",
        "+@admin",
        "-@admin",
        "+@keyspace",
        "-@keyspace",
        "+@connection",
        "+@pubsub",
        "-@pubsub",
        "+@list",
        "-@list",
        "+@scripting",
        "+@transaction",
        "+get",
        "-get",
        "+set",
        "-set",
        "+incr",
        "+copy",
        "-copy",
        "+config",
        "-config",
        "+config|get",
        "-config|set",
        "+client|id",
        "-client|kill",
        "+select|0",
        "-select",
        "+publish",
        "+subscribe",
        "+lmove",
        "+zunionstore",
        "+eval",
        "+sort",
        "+xread",
        "+blpop",
        "+object|encoding",
        "+bitfield",
        "+mset",
    ];
    const KEYS: [&str; 12] = [
        "allkeys",
        "resetkeys",
        "~a*",
        "%R~a*",
        "%W~a*",
        "%RW~b*",
        "%R~b*",
        "%W~c",
        "~*b",
        "~?",
        "resetchannels",
        "&n*",
    ];
    let mut rules = vec!["reset".to_owned(), "on".to_owned()];
    for _ in 0..rng.below(6) {
        rules.push(RULES[rng.index(RULES.len())].to_owned());
    }
    for _ in 0..rng.below(4) {
        rules.push(KEYS[rng.index(KEYS.len())].to_owned());
    }
    for _ in 0..rng.below(3) {
        let (command, keys) = (RULES[rng.index(RULES.len())], KEYS[2 + rng.index(8)]);
        rules.push(format!("({command} {keys})"));
    }
    rules.join(" ")
}

#[test]
fn random_rules_allow_what_they_allow_in_redis() {
    let args = ["--save", "", "--port"];
    let Some(peer) = Peer::start("redis-server", &args) else { return };
    let ours = TestServer::start();
    let mut clients = [peer.address, ours.address].map(Client::connect);
    let rounds = std::env::var("SILTSTONE_REDIS").map_or(150, |n| n.parse().unwrap());
    let calls = "get a|get b|get zb|set a 1|set a 1 get|set b 1 ex 5|incr a|incr c|copy a b|copy b a|\
                 config get x|config set x y|client id|client kill x|client list|select 0|select 1|\
                 publish n x|publish m x|subscribe nx|psubscribe n*|lmove a b left left|lpush c x|\
                 zunionstore c 2 a b|eval x 2 a b|eval x 1 c|sort a store b|sort a|xread streams a 0|\
                 blpop a b 0|object encoding c|bitfield a get u4 0|bitfield a set u4 0 1|mset a 1 c 2|\
                 del c|exists c|ping|auth x|keys *|flushall|info|hset b f v|hget b f|multi|watch a|\
                 dbsize|acl whoami|acl list|memory usage a|expire a 5|strlen b|getdel b|rename a c|\
                 xadd c * f v|script load x|randomkey|command count|smove a b m|pfmerge a b c";
    let mut denied = 0;
    for seed in 0..rounds {
        let rules = draw_rules(&mut TestRng::new(seed));
        let set = format!("acl setuser u {rules}");
        let replies = clients.each_mut().map(|client| client.call(&set));
        assert_eq!(replies[0], replies[1], "seed {seed}: {rules}");
        for call in calls.split('|') {
            let dry_run = format!("acl dryrun u {call}");
            let [redis, ours] = clients.each_mut().map(|client| client.call(&dry_run) == "+OK");
            assert_eq!(redis, ours, "seed {seed}: {rules}: {call}");
            denied += u32::from(!ours);
        }
    }
    assert!(denied > 1000, "only {denied} calls were denied");
}
