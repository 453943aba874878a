//! Replies of the commands on bits and HyperLogLogs equal those of Redis 7.2.

use crate::support::TestServer;

#[test]
fn bitmap_commands_reply_like_redis() {
    let server = TestServer::start();
    let mut client = server.client();
    client.expect(&[
        ("SETBIT b 7 1", ":0"),
        ("SETBIT b 7 0", ":1"),
        ("GET b", "\"\0\""),
        ("SETBIT b 4294967296 1", "-ERR bit offset is not an integer or out of range"),
        ("SETBIT b -1 1", "-ERR bit offset is not an integer or out of range"),
        ("SETBIT b 1 2", "-ERR bit is not an integer or out of range"),
        ("GETBIT b 100", ":0"),
        ("SET k foobar", "+OK"),
        ("GETBIT k 1", ":1"),
        ("BITCOUNT k", ":26"),
        ("BITCOUNT k 0 0", ":4"),
        ("BITCOUNT k 1 1", ":6"),
        ("BITCOUNT k 5 30 BIT", ":17"),
        ("BITCOUNT k 0", "-ERR syntax error"),
        ("BITCOUNT x", ":0"),
        ("BITPOS k 1", ":1"),
        ("BITPOS k 0 1 2", ":8"),
        ("BITPOS k 1 9 20 BIT", ":9"),
        ("BITPOS x 0", ":0"),
        ("BITPOS x 1", ":-1"),
        ("SETBIT q 1 1", ":0"),
        ("BITPOS q 0 -1 -100", ":0"),
        ("BITPOS q 1 -1 -100", ":1"),
        ("BITCOUNT q -1 -100", ":0"),
        ("BITPOS k 2", "-ERR The bit argument must be 1 or 0."),
        ("SETRANGE f 1 x", ":2"),
        ("BITOP NOT n f", ":2"),
        ("BITOP AND n k f", ":6"),
        ("BITOP NOT n k f", "-ERR BITOP NOT must be called with a single source key."),
        ("BITOP OR n x y", ":0"),
        ("EXISTS n", ":0"),
        ("BITFIELD c INCRBY i5 100 1 GET u4 0", "[:1, :0]"),
        ("BITFIELD c SET u8 #1 255 GET u8 8", "[:0, :255]"),
        ("BITFIELD c OVERFLOW FAIL INCRBY u8 8 1", "[nil]"),
        ("BITFIELD c OVERFLOW SAT INCRBY i8 0 -200", "[:-128]"),
        ("BITFIELD c INCRBY i8 0 -1", "[:127]"),
        ("BITFIELD c SET u64 0 1", "-ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is."),
        ("BITFIELD c OVERFLOW x", "-ERR Invalid OVERFLOW type specified"),
        ("BITFIELD_RO c GET u8 8", "[:255]"),
        ("BITFIELD c GET u8 4294967295", "[:0]"),
        ("BITFIELD c GET u8 4294967296", "-ERR bit offset is not an integer or out of range"),
        ("BITFIELD c SET u8 4294967295 1", "-ERR bit offset is not an integer or out of range"),
        ("BITFIELD_RO c SET u8 8 1", "-ERR BITFIELD_RO only supports the GET subcommand"),
        ("BITFIELD x", "[]"),
        ("EXISTS x", ":0"),
    ]);
}

#[test]
fn hyperloglog_commands_reply_like_redis() {
    let server = TestServer::start();
    let mut client = server.client();
    client.expect(&[
        ("PFADD h a b c d e f g", ":1"),
        ("PFCOUNT h", ":7"),
        ("PFADD h a", ":0"),
        ("PFADD e", ":1"),
        ("PFADD e", ":0"),
        ("PFCOUNT e", ":0"),
        ("PFADD i x y a", ":1"),
        ("PFCOUNT h i x", ":9"),
        ("PFMERGE m h i", "+OK"),
        ("PFCOUNT m", ":9"),
        ("TYPE m", "+string"),
        ("SET s text", "+OK"),
        ("PFADD s a", "-WRONGTYPE Key is not a valid HyperLogLog string value."),
        ("PFCOUNT h s", "-WRONGTYPE Key is not a valid HyperLogLog string value."),
    ]);
}
