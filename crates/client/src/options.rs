//! Options of a client.

use std::time::Duration;

/// Options of a client.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// The server's password, if it requires one.
    pub password: Option<String>,
    /// Maximum bytes per request packet, 512 to 65,507. A larger request is sent alone.
    pub packet_bytes: usize,
    /// Maximum bytes per response packet, 512 to 65,507.
    pub answer_bytes: usize,
    /// Maximum requests per packet.
    pub batch: usize,
    /// Maximum unanswered packets per port.
    pub window: usize,
    /// Maximum duration of a call.
    pub deadline: Duration,
    /// Maximum packets per GSO batch, in both directions; 1 disables batches. At most half of
    /// `window` is sent as one batch. The socket uses UDP segmentation offload where the system has
    /// it. An AF_XDP queue coalesces packets up to the frame size, so every hop must carry frames
    /// of the interface's MTU.
    pub gso_segments: usize,
    /// Interface and queue for kernel bypass (AF_XDP). The server is then reached over this
    /// interface by IPv4, and packets are limited to its frame size.
    pub xdp: Option<(String, u32)>,
}

impl Default for ClientOptions {
    /// Packets that fit an Ethernet frame, and a deadline of one second.
    fn default() -> Self {
        ClientOptions {
            password: None,
            packet_bytes: 1400,
            answer_bytes: 1400,
            batch: 64,
            window: 8,
            deadline: Duration::from_secs(1),
            gso_segments: 64,
            xdp: None,
        }
    }
}
