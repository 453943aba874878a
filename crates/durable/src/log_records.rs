//! The log records of a group of writes: a header of the engine, and a body that a batch lends.
//!
//! ```text
//!   headers   [ header 1 ][ header 2 ][ header 3 ]      one buffer, reused from group to group
//!   bodies    (end 1, bytes), (end 2, bytes), …         inline for groups of up to 4 records
//! ```
//!
//! So the usual group is logged without an allocation.

use siltstone_table::RecordParts;
use smallvec::SmallVec;

/// The records of one group.
pub struct LogRecords<'b> {
    headers: &'b mut Vec<u8>,
    /// The end of each record's header, and its body.
    bodies: SmallVec<[(usize, &'b [u8]); 4]>,
}

impl<'b> LogRecords<'b> {
    /// No records; their headers will be in `headers`, which is cleared.
    pub fn new(headers: &'b mut Vec<u8>) -> Self {
        headers.clear();
        LogRecords { headers, bodies: SmallVec::new() }
    }

    /// Adds a record of the header that `encode_header` appends, and `body`.
    pub fn push(&mut self, encode_header: impl FnOnce(&mut Vec<u8>), body: &'b [u8]) {
        encode_header(self.headers);
        self.bodies.push((self.headers.len(), body));
    }

    /// The records, in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = RecordParts<'_>> + Clone {
        let mut start = 0;
        self.bodies.iter().map(move |&(end, body)| {
            let header = &self.headers[start..end];
            start = end;
            [header, body]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_their_own_headers_and_bodies() {
        let mut headers = b"of the last group".to_vec();
        let bodies: Vec<Vec<u8>> = (0..9).map(|n| vec![n; n.into()]).collect();
        let mut records = LogRecords::new(&mut headers);
        for body in &bodies {
            records.push(|out| out.extend_from_slice(&body.repeat(2)), body);
        }
        let found: Vec<_> = records.iter().map(|parts| parts.map(<[u8]>::to_vec)).collect();
        let expected: Vec<_> = bodies.iter().map(|body| [body.repeat(2), body.clone()]).collect();
        assert_eq!(found, expected);
    }
}
