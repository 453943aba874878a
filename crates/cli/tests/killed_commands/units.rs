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
    "PERSIST *",
    "RPUSH L a# b# c# d#",
    "LPUSH L a# b#",
    "LMOVE L L LEFT RIGHT",
    "RPOPLPUSH L L",
    "BLMOVE L L RIGHT LEFT 0.001",
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
    "ZINCRBY Z 1.5 a#",
    "ZUNIONSTORE Z 2 Z Z WEIGHTS 2 1",
    "ZINTERSTORE Z 2 Z T",
    "ZDIFFSTORE Z 2 Z Z",
    "ZRANGESTORE Z Z 0 5",
    "ZMPOP 2 Z Z MIN COUNT 2",
    "ZPOPMAX Z 2",
    "ZREMRANGEBYRANK Z 0 #",
    "ZREMRANGEBYSCORE Z 0 #",
    "GEOADD Z 13.361389 38.115556 a# 15.087269 37.502669 b#",
    "GEOSEARCHSTORE Z Z FROMLONLAT 15 37 BYRADIUS 200 km",
    "HSET H a# 1 b# 2 c# 3 d# 4 e# 5",
    "HINCRBY H a# #",
    "HINCRBYFLOAT H a# 0.5",
    "HDEL H a# b# c#",
    "XADD X MAXLEN = 5 % f v# g w#",
    "XADD X % f v#",
    "XTRIM X MAXLEN 2",
    "XDEL X ~ ~",
    "XGROUP CREATE X g 0 MKSTREAM",
    "XGROUP DESTROY X g",
    "XREADGROUP GROUP g c# COUNT 2 STREAMS X >",
    "XREADGROUP GROUP g c# COUNT 2 NOACK STREAMS X >",
    "XAUTOCLAIM X g c# 0 0 COUNT 2",
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

/// Of all clients the first alone.
const SWAPS: &[&str] = &["SWAPDB 1 2", "MARK"];

const SCRIPT: &str = "redis.call('SET',KEYS[1],'eval')redis.call('RPUSH',KEYS[2],'e1','e2')\
                      return redis.call('ZADD',KEYS[3],7,'e')";

/// Draws a unit. `send` sends commands that only read; `None` if the server is gone.
pub fn unit(client: u64, rng: &mut Rng, send: Send<'_>) -> Option<Unit> {
    if client == 0 && rng.below(20) == 0 {
        let number = rng.below(1000);
        return Some(match SWAPS[rng.below(2)] {
            "MARK" => {
                vec![words("SELECT 1"), words(&format!("SET mark {number}")), words("SELECT 0")]
            }
            swap => vec![words(swap)],
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
            ] {
                commands.push(words(&read.replace('%', &key)));
            }
            commands.push(words(&format!("ZUNION 1 {key} WITHSCORES")));
        }
    }
    commands.push(words(&format!("FUNCTION LIST LIBRARYNAME lib{client} WITHCODE")));
    if client == 0 {
        for database in ["1", "2", "0"] {
            commands.push(words(&format!("SELECT {database}")));
            commands.push(words("GET mark"));
        }
    }
    commands
}
