//! An arbitrary frame between nodes is decoded or rejected, and what is decoded survives encoding.
#![no_main]

use libfuzzer_sys::fuzz_target;
use siltstone_cluster::codec::{
    Answer, Hello, MAX_BODY_BYTES, decode_packet, decode_publication, encode_packet, push_frame,
    push_publication, read_frame,
};

fuzz_target!(|bytes: &[u8]| {
    let mut body = Vec::new();
    let _ = read_frame(&mut &*bytes, &mut body, MAX_BODY_BYTES);
    let _ = Answer::decode(bytes);
    if let Ok(hello) = Hello::decode(bytes) {
        let mut again = Vec::new();
        hello.push(&mut again);
        assert_eq!(again, bytes[..again.len()]);
    }
    if let Ok(Some(publication)) = decode_publication(bytes) {
        let mut again = Vec::new();
        push_publication(&mut again, &publication);
        assert_eq!(again, bytes);
    }
    if let Ok(envelope) = decode_packet(bytes) {
        let mut frame = Vec::new();
        assert!(push_frame(&mut frame, |out| encode_packet(out, &envelope)));
        read_frame(&mut &*frame, &mut body, MAX_BODY_BYTES).expect("a frame");
        assert_eq!(decode_packet(&body).expect("a packet"), envelope);
    }
});
