//! How a client asks: how much at a time, and for how long.

use std::time::Duration;

/// How a client asks.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// What the server asks for, if anything.
    pub password: Option<String>,
    /// Bytes of a packet, 512 to 65,507; a request that is larger goes alone.
    pub packet_bytes: usize,
    /// Bytes of a packet of answers, likewise.
    pub answer_bytes: usize,
    /// Requests in a packet, at most.
    pub batch: usize,
    /// Packets to one port that may wait for their answers.
    pub window: usize,
    /// How long a call may take.
    pub deadline: Duration,
    /// Packets that go together, both ways; 1 for none. Of a window at most half is sent so. The system
    /// carries them as one where it can (UDP's segmentation offload); past its network a frame takes as many
    /// as it has room for, so all of the way should take frames as long as the interface does.
    pub train: usize,
    /// The interface and its queue by which to go past the kernel's network (AF_XDP). The server is then
    /// reached over this interface, by IPv4, and packets fit its frames.
    pub xdp: Option<(String, u32)>,
}

impl Default for ClientOptions {
    /// Packets that fit an Ethernet frame, and a second.
    fn default() -> Self {
        ClientOptions {
            password: None,
            packet_bytes: 1400,
            answer_bytes: 1400,
            batch: 64,
            window: 8,
            deadline: Duration::from_secs(1),
            train: 64,
            xdp: None,
        }
    }
}
