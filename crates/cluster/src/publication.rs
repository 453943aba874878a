//! Messages of publish and subscribe that a node passes on to the others, and a bounded queue of
//! them.
//!
//! They belong to no group: nothing of them is logged, and a message arrives once or never. A queue
//! that is full takes no more, so a peer that is slow or dead costs a bounded amount of memory.

use std::collections::VecDeque;
use std::sync::Arc;

/// What a queued message counts for beside its bytes.
const OVERHEAD_BYTES: usize = 64;

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    /// The channel that it was sent to.
    pub channel: Vec<u8>,
    /// The message.
    pub message: Vec<u8>,
}

impl Publication {
    /// What it counts for in a queue.
    fn bytes(&self) -> usize {
        OVERHEAD_BYTES + self.channel.len() + self.message.len()
    }
}

/// Messages in the order of their arrival, up to a number of bytes.
#[derive(Debug, Default)]
pub struct PublicationQueue {
    waiting: VecDeque<Arc<Publication>>,
    bytes: usize,
    max_bytes: usize,
}

impl PublicationQueue {
    /// An empty queue.
    pub fn new(max_bytes: usize) -> Self {
        PublicationQueue { waiting: VecDeque::new(), bytes: 0, max_bytes }
    }

    /// Adds a message; `false` if there is no room for it.
    pub fn push(&mut self, publication: Arc<Publication>) -> bool {
        let bytes = self.bytes + publication.bytes();
        let has_room = bytes <= self.max_bytes;
        if has_room {
            self.bytes = bytes;
            self.waiting.push_back(publication);
        }
        has_room
    }

    /// Takes the first messages: one, and more until they have this number of bytes.
    pub fn take(&mut self, bytes: usize) -> Vec<Arc<Publication>> {
        let (mut taken, mut taken_bytes) = (Vec::new(), 0);
        while taken_bytes < bytes
            && let Some(publication) = self.waiting.pop_front()
        {
            taken_bytes += publication.bytes();
            taken.push(publication);
        }
        self.bytes -= taken_bytes;
        taken
    }

    /// The number of messages that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// What the messages that wait count for.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Drops all messages. Returns their number.
    pub fn clear(&mut self) -> usize {
        self.bytes = 0;
        std::mem::take(&mut self.waiting).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_is_bounded_and_keeps_the_order() {
        let publication = |number: u8| {
            Arc::new(Publication { channel: vec![number; 20], message: vec![number; 16] })
        };
        let mut queue = PublicationQueue::new(350);
        let taken: Vec<_> = (0..5).map(|number| queue.push(publication(number))).collect();
        assert_eq!(taken, [true, true, true, false, false]);
        assert_eq!((queue.len(), queue.bytes()), (3, 300));
        // One at least, however large it is.
        assert_eq!(queue.take(1), [publication(0)]);
        assert!(queue.push(publication(5)));
        assert_eq!(queue.take(101), [publication(1), publication(2)]);
        assert_eq!((queue.clear(), queue.bytes(), queue.is_empty()), (1, 0, true));
        let large = Publication { channel: Vec::new(), message: vec![0; 287] };
        assert!(!queue.push(Arc::new(large)));
    }
}
