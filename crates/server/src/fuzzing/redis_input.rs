//! Commands and scripts made of a fuzzer's bytes: each byte chooses a word, so that few bytes make
//! what the parsers accept.

use super::CommandWords;
use crate::command::command_index;

/// Words of options, numbers, ids, ranges and names.
pub const WORDS: &str = "0 1 2 3 7 10 100 -1 -2 -7 4294967295 4294967296 9223372036854775807 \
    -9223372036854775808 18446744073709551615 0.5 -1.5 1e3 3e400 nan inf -inf +inf x y z m1 m2 m3 f1 \
    f2 v - + ( [ (1 [m1 (m2 $ > * ~ = 0-0 1-1 5-* 1-0 ? [a-z]* h?l EX PX EXAT PXAT NX XX GT LT CH \
    INCR KEEPTTL PERSIST GET COUNT LIMIT WITHSCORES WITHSCORE WITHVALUES WITHCOORD WITHDIST \
    WITHHASH STORE STOREDIST BY ASC DESC ALPHA MATCH TYPE string hash list NOVALUES BEFORE AFTER \
    LEFT RIGHT MAXLEN MINID NOMKSTREAM GROUP g1 g2 c1 STREAMS NOACK MKSTREAM ENTRIESREAD IDLE TIME \
    RETRYCOUNT FORCE JUSTID LASTID FIELDS AGGREGATE SUM MIN MAX WEIGHTS REPLACE DB ABSTTL IDLETIME \
    FREQ FROMLONLAT FROMMEMBER BYRADIUS BYBOX BYSCORE BYLEX REV km m 13.36 38.11 u8 i64 u63 i5 #2 SET \
    INCRBY OVERFLOW WRAP SAT FAIL AND OR XOR NOT BIT BYTE IDX LEN MINMATCHLEN WITHMATCHLEN RANK FULL \
    CREATE SETID DESTROY CREATECONSUMER DELCONSUMER STREAM GROUPS CONSUMERS HELP ENCODING REFCOUNT \
    USAGE SAMPLES DOCS LIST INFO GETKEYS GETKEYSANDFLAGS EXISTS DUMP STATS";

/// Keys: few, so that commands meet.
const KEYS: [&[u8]; 6] = [b"a", b"b", b"c", b"", b"{t}1", b"\xff\xc0\x01"];
/// Maximum number of words after a command's key.
const MAX_WORDS: usize = 8;

/// Parts of scripts.
const PARTS: &[&str] = &[
    "return",
    "local x =",
    "x",
    "y",
    "x = x",
    "if x then",
    "else",
    "end",
    "for i = 1, 3 do",
    "while x do",
    "break",
    "function(...)",
    "local function f(...)",
    "f(x)",
    "...",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    ",",
    ";",
    "..",
    ".",
    ":",
    "+",
    "-",
    "*",
    "/",
    "%",
    "^",
    "#",
    "==",
    "~=",
    "<",
    "and",
    "or",
    "not",
    "nil",
    "true",
    "false",
    "0",
    "1",
    "2",
    "-1",
    "1e308",
    "0/0",
    "2^53",
    "'a'",
    "'%s%d'",
    "'\\0\\255'",
    "\"\\n\"",
    "[[long]]",
    "-- c\n",
    "KEYS",
    "KEYS[1]",
    "ARGV",
    "ARGV[1]",
    "ARGV[2]",
    "redis",
    "redis.call('get', KEYS[1])",
    "redis.call('set', KEYS[1], ARGV[1])",
    "redis.call('rpush', KEYS[1], 'a', 'b')",
    "redis.call('lrange', KEYS[1], 0, -1)",
    "redis.call('hset', KEYS[1], 'f', 'v')",
    "redis.call('hgetall', KEYS[1])",
    "redis.call(ARGV[1], KEYS[1], ARGV[2])",
    "redis.pcall('incr', KEYS[1])",
    "redis.pcall(unpack(ARGV))",
    "redis.call('del', 'other')",
    "redis.error_reply(",
    "redis.status_reply(",
    "redis.sha1hex(",
    "redis.log(redis.LOG_WARNING,",
    "redis.setresp(3)",
    "redis.replicate_commands()",
    "redis.acl_check_cmd('get', 'a')",
    "cjson.encode(",
    "cjson.decode(",
    "cjson.encode_max_depth(",
    "cjson.encode_sparse_array(true)",
    "cmsgpack.pack(",
    "cmsgpack.unpack(",
    "struct.pack('>I2s', 1,",
    "struct.unpack('<i4',",
    "struct.size('c9')",
    "bit.band(1,",
    "bit.tohex(",
    "string.rep('a', 9)",
    "string.format('%5.1f|%q',",
    "string.find(",
    "string.gsub(x, '%w', '%0')",
    "string.byte(",
    "string.char(",
    "table.concat(",
    "table.insert(x,",
    "table.sort(x",
    "table.remove(x)",
    "math.random(9)",
    "math.huge",
    "tostring(",
    "tonumber(",
    "type(",
    "pairs(",
    "ipairs(",
    "next(",
    "select('#',",
    "unpack(",
    "pcall(",
    "error(",
    "assert(",
    "rawget(x,",
    "rawset(_G, 'x',",
    "setmetatable(",
    "getmetatable(",
    "loadstring(",
    "load(",
    "_G",
    "_ENV",
    "coroutine",
    "os.clock()",
    "collectgarbage('count')",
    "print(x)",
    "{ok = 'fine'}",
    "{err = 'bad'}",
    "{double = 1.5}",
    "{map = {a = 1}}",
    "goto x",
    "::x::",
];

/// Commands: a byte for the name, one for the number of words, and one per word.
pub(super) fn commands(bytes: &[u8]) -> Vec<CommandWords> {
    let names: Vec<&str> = command_index().all().iter().map(|command| command.name).collect();
    let words: Vec<&str> = WORDS.split_whitespace().collect();
    let mut bytes = bytes.iter().copied();
    let mut commands = Vec::new();
    while let (Some(high), Some(low)) = (bytes.next(), bytes.next()) {
        let name = names[usize::from(u16::from_be_bytes([high, low])) % names.len()];
        let key = KEYS[usize::from(low) % KEYS.len()];
        let mut command = vec![name.as_bytes().to_vec(), key.to_vec()];
        let count = usize::from(bytes.next().unwrap_or(0)) % (MAX_WORDS + 1);
        for byte in bytes.by_ref().take(count) {
            command.push(match usize::from(byte) {
                byte if byte < 8 * KEYS.len() => KEYS[byte % KEYS.len()].to_vec(),
                byte => words[(byte * 7) % words.len()].as_bytes().to_vec(),
            });
        }
        // MULTI and EXEC have no key.
        if matches!(name, "multi" | "exec" | "discard" | "unwatch") {
            command.truncate(1);
        }
        commands.push(command);
    }
    commands
}

/// A script: a byte per part. The last ones are copied as they are.
pub(super) fn script(bytes: &[u8]) -> Vec<u8> {
    let mut script = Vec::new();
    for &byte in bytes {
        match PARTS.get(usize::from(byte)) {
            Some(part) => script.extend_from_slice(part.as_bytes()),
            None => script.push(byte),
        }
        script.push(b' ');
    }
    script
}
