//! Commands and scripts of one Redis client, over `lsm` tables in memory.
//!
//! Two servers with equal tables and a stopped clock get the same commands: one as a whole
//! pipeline, whose commands run in groups where they can, the other one by one. Both must give the
//! same replies, and have the same values afterwards. Scripts run in one of them: each gets one
//! reply, and leaves the sandbox as it was.
//!
//! Left out are commands that end, block or change the connection or the server, and those whose
//! replies are random or depend on the time.

use std::net::SocketAddr;
use std::sync::Arc;

use mio::{Poll, Token, Waker};
use siltstone::{Env, ManualClock, Table, engines};
use siltstone_engine::Error;
use siltstone_vfs::Ram;

use super::{MAX_OUTPUT, redis_input};
use crate::clients::Address;
use crate::command::{Member, Members, run_group};
use crate::net::protocol::{Protocol, ProtocolState, Step};
use crate::net::wakeups::Wakeups;
use crate::resp::Replies;
use crate::store::write_batcher::WriteBatcher;
use crate::{Server, ServerOptions};

/// A command with its arguments.
pub type CommandWords = Vec<Vec<u8>>;

/// Inputs after which the servers are replaced: their memory grows with what was written.
const INPUTS_PER_SERVER: usize = 500;

/// Names of commands that are left out, and beginnings of names with `*`.
const LEFT_OUT: &str = "acl auth bgrewriteaof bgsave bl* br* bz* client cluster command config debug \
    dump_all eval* evalsha* failover fcall* function hello hrandfield info lastsave latency lolwut \
    memory migrate module monitor object psubscribe psync publish pubsub punsubscribe quit randomkey \
    readonly readwrite replconf replicaof reset role save script shutdown siltstone* slaveof slowlog \
    spop spublish srandmember ssubscribe subscribe sunsubscribe swapdb sync time unsubscribe wait \
    waitaof xread xreadgroup zrandmember";

/// Whether a command is run.
fn is_run(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    !LEFT_OUT.split_whitespace().any(|out| match out.strip_suffix('*') {
        Some(start) => name.starts_with(start.as_bytes()),
        None => name == out.as_bytes(),
    })
}

/// The only member of a group.
struct Only<'a> {
    client: &'a mut ProtocolState,
    replies: &'a mut Replies,
    input: &'a [u8],
}

impl Members for Only<'_> {
    fn get(&mut self, _: usize) -> Option<Member<'_>> {
        self.client.member(self.replies, self.input)
    }
}

/// A server with one client.
struct Side {
    server: Server,
    batcher: WriteBatcher,
    wakeups: Arc<Wakeups>,
    client: Option<ProtocolState>,
    /// Keeps the waker usable.
    _poll: Poll,
}

impl Side {
    fn new() -> Result<Self, Error> {
        let clock = Arc::new(ManualClock::at(1_800_000_000_000));
        let options = [("memtable", "64KiB"), ("l0_capacity", "0")];
        let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let env = Env::replayable(clock.clone(), 1);
        let engine = engines::open("lsm", Arc::new(Ram::new()), &env, &options.into())?;
        let options = ServerOptions {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            clock,
            max_request_bytes: 8 << 20,
            ..ServerOptions::default()
        };
        let server = Server::bind(vec![Table::new("fuzzed", engine)], options)?;
        let failed = |error: std::io::Error| Error::io("create", "an event queue", &error);
        let poll = Poll::new().map_err(failed)?;
        let waker = Waker::new(poll.registry(), Token(0)).map_err(failed)?;
        let wakeups = Arc::new(Wakeups::new(waker));
        Ok(Side { server, batcher: WriteBatcher::new(1), wakeups, client: None, _poll: poll })
    }

    /// Replies to a pipeline. A client whose command is parked, or that is to be closed, is
    /// replaced by a new one.
    fn run(&mut self, bytes: &[u8]) -> Vec<u8> {
        let shared = self.server.shared();
        let mut replies = Replies::new(MAX_OUTPUT);
        let client = self.client.get_or_insert_with(|| {
            let address = Address::Ip(SocketAddr::from(([127, 0, 0, 1], 1)));
            shared.clients.reserve_connection(usize::MAX);
            let wakeups = self.wakeups.clone();
            let registration = shared.clients.register(address.clone(), address, wakeups, 0);
            ProtocolState::new(Protocol::Resp, shared, registration)
        });
        let mut start = 0;
        while start < bytes.len() && !client.is_closing() && !client.is_parked() {
            let input = &bytes[start..];
            match client.step(shared, &mut replies, &mut self.batcher, (0, input)) {
                Ok(Step::Consumed(count)) => start += count,
                Ok(Step::Joined) => {
                    let Some(mut group) = self.batcher.groups.take() else { break };
                    let mut members = Only { client: &mut *client, replies: &mut replies, input };
                    run_group(shared, &mut self.batcher, &mut group, &mut members);
                    start += group.parts.first().map_or(0, |part| part.end);
                    self.batcher.groups.recycle(group);
                }
                Ok(Step::Incomplete) => break,
                Err(text) => {
                    client.error(&mut replies, &text);
                    break;
                }
            }
            while client.is_busy() && !client.is_parked() {
                client.resume(shared, &mut replies, &mut self.batcher);
            }
        }
        client.answer_batched_sets(shared, &mut replies, &mut self.batcher);
        self.batcher.finish_iteration();
        if client.is_closing() || client.is_parked() {
            client.close(shared);
            self.client = None;
            shared.clients.release_connection();
        }
        replies.unsent().to_vec()
    }

    /// The reply of EXEC to a script.
    fn eval(&mut self, words: &[&[u8]]) -> Vec<u8> {
        self.call(&[b"MULTI"]);
        let queued = self.call(words);
        let reply = self.call(&[b"EXEC"]);
        if queued == b"+QUEUED\r\n" { reply } else { queued }
    }

    fn call(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        append(&mut bytes, words.iter().copied());
        self.run(&bytes)
    }
}

fn append<'w>(bytes: &mut Vec<u8>, words: impl ExactSizeIterator<Item = &'w [u8]>) {
    bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
}

/// Two servers that must give the same replies.
pub struct RedisHarness {
    sides: [Side; 2],
    inputs: usize,
}

impl RedisHarness {
    /// Two servers with empty tables, bound to free ports and never run.
    ///
    /// # Errors
    /// System errors.
    pub fn new() -> Result<Self, Error> {
        Ok(RedisHarness { sides: [Side::new()?, Side::new()?], inputs: 0 })
    }

    /// Empties both servers.
    fn begin(&mut self) {
        self.inputs += 1;
        if self.inputs.is_multiple_of(INPUTS_PER_SERVER) {
            self.sides = [(); 2].map(|()| Side::new().expect("servers as before"));
        }
        for side in &mut self.sides {
            side.call(&[b"DISCARD"]);
            assert_eq!(side.call(&[b"FLUSHALL"]), b"+OK\r\n");
        }
    }

    /// Runs the commands that a fuzzer's bytes choose, as [`commands`](Self::commands).
    ///
    /// # Panics
    /// Like that.
    pub fn chosen_commands(&mut self, bytes: &[u8]) {
        self.commands(&redis_input::commands(bytes));
    }

    /// Runs the script whose parts a fuzzer's bytes choose, as [`script`](Self::script).
    ///
    /// # Panics
    /// Like that.
    pub fn chosen_script(&mut self, bytes: &[u8]) -> Vec<u8> {
        let (args, parts) = bytes.split_at(bytes.len().min(2));
        let words: Vec<&[u8]> = redis_input::WORDS.split_whitespace().map(str::as_bytes).collect();
        let args: Vec<&[u8]> =
            args.iter().map(|byte| words[usize::from(*byte) % words.len()]).collect();
        self.script(&redis_input::script(parts), b"a", &args)
    }

    /// Runs commands as a pipeline and one by one.
    ///
    /// # Panics
    /// If the replies or the values differ, which is a bug.
    pub fn commands(&mut self, commands: &[CommandWords]) {
        self.begin();
        let [whole, single] = &mut self.sides;
        let (mut pipeline, mut expected) = (Vec::new(), Vec::new());
        for words in commands.iter().filter(|words| words.first().is_some_and(|it| is_run(it))) {
            let start = pipeline.len();
            append(&mut pipeline, words.iter().map(Vec::as_slice));
            expected.extend(single.run(&pipeline[start..]));
        }
        let found = whole.run(&pipeline);
        assert!(
            found == expected,
            "commands: {}\npipeline: {}\none by one: {}",
            pipeline.escape_ascii(),
            found.escape_ascii(),
            expected.escape_ascii()
        );
        let [whole, single] = [whole, single].map(|side| {
            side.call(&[b"DISCARD"]);
            side.values()
        });
        assert!(whole == single, "{}: the values differ", pipeline.escape_ascii());
    }

    /// Runs a script with one key and arguments, in MULTI, where it ends after some time instead of
    /// moving to another thread. Returns the reply of EXEC.
    ///
    /// # Panics
    /// If there is another number of replies than one, or the sandbox has changed: bugs.
    pub fn script(&mut self, script: &[u8], key: &[u8], args: &[&[u8]]) -> Vec<u8> {
        self.begin();
        let [side, _] = &mut self.sides;
        let reply = side.eval(&[&[b"EVAL", script, b"1", key], args].concat());
        let is_whole = is_one_reply(&reply);
        assert!(is_whole, "{}: {}", script.escape_ascii(), reply.escape_ascii());
        let probe = side.eval(&[b"EVAL", SANDBOX_PROBE, b"0", b"x"]);
        // On a loaded machine the probe may take too long, too.
        let is_clean = probe == PROBED || probe.windows(8).any(|word| word == b"ran for ");
        assert!(is_clean, "after {}: {}", script.escape_ascii(), probe.escape_ascii());
        reply
    }
}

/// Sees what scripts could have left behind: globals, changed functions, metatables, arguments.
const SANDBOX_PROBE: &[u8] = b"local names = {} for name in pairs(_G) do names[#names + 1] = name end \
    if getmetatable('') ~= nil and pcall(function() getmetatable('').x = 1 end) then return 'strings' end \
    if pcall(function() redis.call = 1 end) then return 'redis' end \
    if pcall(function() x = 1 end) then return 'globals' end \
    return {#KEYS, ARGV[1], type(redis.call), string.rep('a', 2), tostring(cjson.encode({1})), \
    math.floor(2.5), #names > 0 and 'named' or 'none'}";
const PROBED: &[u8] =
    b"*1\r\n*7\r\n:0\r\n$1\r\nx\r\n$8\r\nfunction\r\n$2\r\naa\r\n$3\r\n[1]\r\n:2\r\n$5\r\nnamed\r\n";

/// Whether bytes are one whole reply of RESP2.
fn is_one_reply(bytes: &[u8]) -> bool {
    let (mut rest, mut missing) = (bytes, 1u64);
    while missing > 0 {
        let Some(end) = rest.windows(2).position(|two| two == b"\r\n") else { return false };
        let (line, after) = (&rest[..end], &rest[end + 2..]);
        let number = line.get(1..).and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        missing -= 1;
        rest = match (line.first(), number) {
            (Some(b'+' | b'-'), _) | (Some(b':' | b'$' | b'*'), Some(-1)) => after,
            (Some(b':'), Some(_)) => after,
            (Some(b'*'), Some(count @ 0i64..)) => {
                missing += count as u64;
                after
            }
            (Some(b'$'), Some(len @ 0..)) => {
                match after
                    .split_at_checked(len as usize)
                    .map(|(_, after)| after.strip_prefix(b"\r\n"))
                {
                    Some(Some(after)) => after,
                    _ => return false,
                }
            }
            _ => return false,
        };
    }
    rest.is_empty()
}

impl Side {
    /// All keys with their dumped values and expiries.
    fn values(&mut self) -> Vec<(Vec<u8>, Vec<u8>, Vec<u8>)> {
        let mut keys = Vec::new();
        {
            let database = &self.server.shared().databases[0];
            let mut cursor = database.iter().expect("keys");
            let mut is_valid = cursor.first().expect("a first key");
            while is_valid {
                keys.push(cursor.key().to_vec());
                is_valid = cursor.next().expect("a next key");
            }
        }
        keys.into_iter()
            .map(|key| {
                let dumped = self.call(&[b"DUMP", &key]);
                let expiry = self.call(&[b"PEXPIRETIME", &key]);
                (key, dumped, expiry)
            })
            .collect()
    }
}

impl std::fmt::Debug for RedisHarness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisHarness").field("inputs", &self.inputs).finish_non_exhaustive()
    }
}
