//! Random units of commands of all families, and the commands that read all keys of a client.

/// Commands that are sent at once.
pub type Unit = Vec<Vec<Vec<u8>>>;

/// Sends commands, and returns their replies, or `None` if the server has gone.
pub type Send<'a> = &'a mut dyn FnMut(&[Vec<Vec<u8>>]) -> Option<Vec<Vec<u8>>>;

/// Pseudo-random numbers (splitmix64), and ids of streams, which rise.
pub struct Rng(u64, u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15), 0)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

/// Letters of the keys: strings, lists, sets, sorted sets, hashes, streams, HyperLogLogs.
const KINDS: [char; 7] = ['s', 'l', 't', 'z', 'h', 'x', 'p'];
const KEYS_PER_KIND: usize = 3;

/// In a template `S` to `P` stand for a random key of a kind, `*` for a key of any kind, `#` for a
/// small number, `@` for a time in the future, `%` for an id of a stream above all earlier ones,
/// `~` for an earlier one, `C` for the number of the client.
const TEMPLATES: &[&str] = &[
    "MSET S v# S w# S u#",
    "MSETNX S v# S w#",
    "SET S v# PXAT @",
    "APPEND S tail#",
    "SETRANGE S # patch",
    "SETBIT S # 1",
    "INCRBY S #",
    "INCRBYFLOAT S 0.5",
    "SETNX S v#",
    "GETSET S v#",
    "SET S v# KEEPTTL",
    "BITOP XOR S S S",
    "GETDEL S",
    "GETEX S PXAT @",
    "BITFIELD S SET u8 # 200 INCRBY u8 0 #",
    "RENAME * *",
    "RENAMENX * *",
    "COPY * * REPLACE",
    "DEL * * *",
    "UNLINK * *",
    "PEXPIREAT * @",
    "PEXPIREAT * 1",
    "PEXPIREAT * @ GT",
    "PEXPIREAT * @ NX",
    "PERSIST *",
    "RPUSH L a# b# c# d#",
    "LPUSH L a# b#",
    "LPUSHX L x# y#",
    "RPUSHX L z#",
    "LMOVE L L LEFT RIGHT",
    "RPOPLPUSH L L",
    "BLMOVE L L RIGHT LEFT 0.001",
    "BLPOP L L 0.001",
    "BLMPOP 0.001 2 L L RIGHT COUNT 2",
    "LMPOP 2 L L LEFT COUNT 3",
    "LINSERT L BEFORE a# new#",
    "LREM L 0 a#",
    "LTRIM L # -2",
    "LSET L 0 set#",
    "LPOP L 2",
    "SADD T a# b# c# d#",
    "SMOVE T T a#",
    "SREM T a# b#",
    "SUNIONSTORE T T T",
    "SINTERSTORE T T T",
    "SDIFFSTORE T T T",
    "ZADD Z 1 a# # b# 3.5 c#",
    "ZADD Z GT CH # a# # b#",
    "ZADD Z LT INCR # a#",
    "ZINCRBY Z 1.5 a#",
    "ZUNIONSTORE Z 2 Z Z WEIGHTS 2 1",
    "ZINTERSTORE Z 2 Z T",
    "ZDIFFSTORE Z 2 Z Z",
    "ZRANGESTORE Z Z 0 5",
    "ZMPOP 2 Z Z MIN COUNT 2",
    "ZPOPMAX Z 2",
    "BZPOPMIN Z Z 0.001",
    "ZREM Z a# b#",
    "ZREMRANGEBYLEX Z - [b",
    "ZREMRANGEBYRANK Z 0 #",
    "ZREMRANGEBYSCORE Z 0 #",
    "GEOADD Z 13.361389 38.115556 a# 15.087269 37.502669 b#",
    "GEOSEARCHSTORE Z Z FROMLONLAT 15 37 BYRADIUS 200 km",
    "GEORADIUS Z 15 37 200 km STORE Z",
    "GEORADIUSBYMEMBER Z a# 300 km STOREDIST Z",
    "HSET H a# 1 b# 2 c# 3 d# 4 e# 5",
    "HMSET H a# 1 m# 2",
    "HSETNX H f# v#",
    "HINCRBY H a# #",
    "HINCRBYFLOAT H a# 0.5",
    "HDEL H a# b# c#",
    "HPEXPIREAT H @ FIELDS 2 a# b#",
    "HPEXPIREAT H @ LT FIELDS 1 a#",
    "HPEXPIREAT H 1 FIELDS 1 c#",
    "HPERSIST H FIELDS 2 a# b#",
    "XADD X MAXLEN = 5 % f v# g w#",
    "XADD X % f v#",
    "XTRIM X MAXLEN 2",
    "XDEL X ~ ~",
    "XGROUP CREATE X g 0 MKSTREAM",
    "XGROUP DESTROY X g",
    "XREADGROUP GROUP g c# COUNT 2 STREAMS X >",
    "XREADGROUP GROUP g c# COUNT 2 NOACK STREAMS X >",
    "XREADGROUP GROUP g c# COUNT 2 STREAMS X 0",
    "XACK X g ~ ~",
    "XCLAIM X g c# 0 ~ FORCE JUSTID",
    "XAUTOCLAIM X g c# 0 0 COUNT 2",
    "XGROUP CREATECONSUMER X g c#",
    "XGROUP DELCONSUMER X g c#",
    "XGROUP SETID X g 0",
    "XSETID X %",
    "PFADD P a# b# c#",
    "PFMERGE P P P",
    "SORT L ALPHA STORE *",
    "SORT T ALPHA LIMIT 0 3 STORE L",
    "FUNCTION LOAD REPLACE code#",
    "FUNCTION DELETE libC",
    "FCALL fC 2 S H",
    "EVAL script 3 S L Z",
    "RESTORE * 0 dump REPLACE",
    "RESTORE * @ dump REPLACE ABSTTL",
    "MULTI",
];

const SCRIPT: &str = "redis.call('SET',KEYS[1],'eval')redis.call('RPUSH',KEYS[2],'e1','e2')\
                      return redis.call('ZADD',KEYS[3],7,'e')";

/// Draws a unit. `send` sends commands that only read; `None` if the server is gone.
pub fn unit(client: u64, rng: &mut Rng, send: Send<'_>) -> Option<Unit> {
    // Of all clients the first alone has other tables.
    if client == 0 && rng.below(12) == 0 {
        let in_one = |command| vec![words("SELECT 1"), command, words("SELECT 0")];
        return Some(match rng.below(4) {
            0 => vec![words("SWAPDB 1 2")],
            1 => in_one(words(&format!("SET mark {}", rng.below(1000)))),
            2 => vec![fill("MOVE * 1", client, rng)],
            _ => in_one(fill("MOVE * 0", client, rng)),
        });
    }
    let template = TEMPLATES[rng.below(TEMPLATES.len())];
    if template == "MULTI" {
        let mut unit = vec![words("MULTI")];
        for _ in 0..2 + rng.below(4) {
            let template = TEMPLATES[rng.below(TEMPLATES.len())];
            // Libraries are written at once, and a transaction may be queued alone.
            if !["FUNCTION", "MULTI", "RESTORE"].iter().any(|word| template.starts_with(word)) {
                unit.push(fill(template, client, rng));
            }
        }
        unit.push(words("EXEC"));
        return Some(unit);
    }
    let mut command = fill(template, client, rng);
    if let Some(place) = command.iter().position(|word| word == b"dump") {
        let dumped = send(&[vec![b"DUMP".to_vec(), key(any(rng), client, rng)]])?.remove(0);
        let start = dumped.iter().position(|byte| *byte == b'\n')? + 1;
        command[place] = dumped.get(start..dumped.len() - 2).unwrap_or_default().to_vec();
    }
    Some(vec![command])
}

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn any(rng: &mut Rng) -> char {
    KINDS[rng.below(KINDS.len())]
}

fn key(kind: char, client: u64, rng: &mut Rng) -> Vec<u8> {
    format!("{client}:{kind}{}", rng.below(KEYS_PER_KIND)).into_bytes()
}

fn fill(template: &str, client: u64, rng: &mut Rng) -> Vec<Vec<u8>> {
    let command = template.split(' ').next().unwrap_or_default();
    let mut replace = |word: &str| match word {
        "*" => key(any(rng), client, rng),
        "script" => SCRIPT.as_bytes().to_vec(),
        "code#" => {
            let code = format!(
                "#!lua name=lib{client}\nredis.register_function('f{client}',function(keys) \
                 redis.call('SET',keys[1],'{}') return redis.call('HSET',keys[2],'f','1') end)",
                rng.below(1000)
            );
            code.into_bytes()
        }
        "%" => {
            rng.1 += 1;
            format!("{}-0", rng.1).into_bytes()
        }
        "~" => format!("{}-0", rng.1.saturating_sub(rng.below(20) as u64)).into_bytes(),
        _ if word.len() == 1 && word.chars().all(char::is_uppercase) => {
            key(word.chars().next().unwrap_or('S').to_ascii_lowercase(), client, rng)
        }
        _ => {
            let word = word.replace('#', &rng.below(12).to_string());
            let word = word.replace('@', &format!("{}", 4_102_444_800_000 + rng.below(1000)));
            match word.strip_suffix('C').filter(|start| ["lib", "f"].contains(start)) {
                Some(start) => format!("{start}{client}").into_bytes(),
                None => word.into_bytes(),
            }
        }
    };
    let mut filled: Vec<Vec<u8>> = template.split(' ').map(&mut replace).collect();
    filled[0] = command.as_bytes().to_vec();
    filled
}

/// Commands that read all that a client can have written and that later replies may depend on. The
/// number of elements is stored apart from them.
pub fn fingerprint_commands(client: u64) -> Unit {
    let mut commands = Vec::new();
    if client == 0 {
        for database in ["1", "2"] {
            commands.push(words(&format!("SELECT {database}")));
            commands.push(words("GET mark"));
            push_reads(client, &mut commands);
        }
        commands.push(words("SELECT 0"));
    }
    push_reads(client, &mut commands);
    commands.push(words(&format!("FUNCTION LIST LIBRARYNAME lib{client} WITHCODE")));
    commands
}

/// Adds commands that read all keys of a client in a table.
fn push_reads(client: u64, commands: &mut Unit) {
    for kind in KINDS {
        for number in 0..KEYS_PER_KIND {
            let key = format!("{client}:{kind}{number}");
            for read in [
                "TYPE",
                "PEXPIRETIME",
                "GET",
                "LLEN",
                "SCARD",
                "SMEMBERS",
                "ZCARD",
                "HLEN",
                "HGETALL",
                "XLEN",
                "XPENDING -g",
            ] {
                let (name, rest) = read.split_once(" -").unwrap_or((read, ""));
                commands.push(words(format!("{name} {key} {rest}").trim_end()));
            }
            for read in [
                "LRANGE % 0 -1",
                "ZRANGE % 0 -1 WITHSCORES",
                "XRANGE % - +",
                "XINFO STREAM %",
                "XINFO GROUPS %",
                "XINFO CONSUMERS % g",
                "HPEXPIRETIME % FIELDS 4 a1 a2 b1 b2",
            ] {
                commands.push(words(&read.replace('%', &key)));
            }
            commands.push(words(&format!("ZUNION 1 {key} WITHSCORES")));
        }
    }
}

/// The two writes of a unit's MOVE, each in the place of it: the key may be in both tables.
pub fn halves_of_move(unit: &Unit) -> Option<[Unit; 2]> {
    let place = unit.iter().position(|words| words[0] == b"MOVE")?;
    let [_, key, database] = &unit[place][..] else { return None };
    let (mut copy, mut removal) = (unit.clone(), unit.clone());
    copy[place] = [&b"COPY"[..], key, key, b"DB", database].map(<[u8]>::to_vec).to_vec();
    removal[place] = vec![b"DEL".to_vec(), key.clone()];
    Some([copy, removal])
}
