//! An AF_XDP socket: frames in memory that is shared with the kernel, and four rings of their places.
//!
//! ```text
//!                    chunks to receive into             chunks to send from
//! memory             0 ....................... N−1      N ....................... 2N−1
//!                                                       │ place │ place │ place │ …
//!
//! fill        ours ─▶ kernel   places that are free     tx          ours ─▶ kernel   what to send
//! rx        kernel ─▶ ours     what has come            completion  kernel ─▶ ours   what was sent
//! ```
//!
//! A ring is a producer's position, a consumer's position and N entries, all mapped from the socket.
//! Each side writes its own position and reads the other's; N is a power of two, and positions go on
//! past it and wrap.
//!
//! A frame that is longer than a chunk lies in several, one entry each, all but the last marked to go on.
//! Those of a frame to be sent are neighbours, a *place* for the largest, so it is written at one go.
//!
//! Invariant: of each chunk there is one holder at any time: the kernel from when it is
//! published in `fill` or `tx` until it comes back in `rx` or `completion`, else this program. What the
//! kernel holds is not touched.
//!
//! Source: Linux, `Documentation/networking/af_xdp.rst` and `include/uapi/linux/if_xdp.h`. Crates that
//! do the same hand out frames as raw pointers, whose holder would be ours to prove at each call.

use std::io;
use std::marker::PhantomData;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use super::let_go::once_let_go;

/// Entries of each ring, and chunks for each direction.
const ENTRIES: u32 = 512;
/// Bytes of a chunk.
const CHUNK_BYTES: usize = 4096;
/// What the kernel keeps free before a frame that it has received.
const HEADROOM_BYTES: usize = 256;
/// The largest frame that can be received in one chunk.
const MAX_PIECE_BYTES: usize = CHUNK_BYTES - HEADROOM_BYTES;
/// The largest frame in several: no more than the pieces that the kernel sends as one.
const MAX_FRAME_BYTES: usize = 16 * CHUNK_BYTES;
/// What may be on its way out, in bytes of the kernel's memory.
const SEND_BUFFER_BYTES: libc::c_int = 16 << 20;
/// How often the kernel is asked to send what waits before it is left for the next time.
const MAX_KICKS: usize = 64;

/// A mapping; unmapped on drop.
struct Map {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to no thread.
unsafe impl Send for Map {}

impl Map {
    fn new(bytes: usize, of: Option<(BorrowedFd<'_>, u64)>) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the addresses, so nothing that is in use is mapped over.
        let base = unsafe {
            match of {
                None => {
                    let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
                    mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags)?
                }
                Some((file, offset)) => {
                    let flags = MapFlags::SHARED | MapFlags::POPULATE;
                    mmap(std::ptr::null_mut(), bytes, protection, flags, file, offset)?
                }
            }
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Map { base, bytes })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped with this length, and every pointer into it is in the struct that owns it. The
        // kernel has its own hold on the pages. A failure would leave it mapped, which hurts nobody.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// A ring of entries of one kind; this program is its producer or its consumer, always the same.
struct Ring<T> {
    map: Map,
    produced_at: usize,
    consumed_at: usize,
    entries_at: usize,
    /// Our position.
    position: u32,
    entries: PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    fn map(socket: BorrowedFd<'_>, page: u64, offsets: &libc::xdp_ring_offset) -> io::Result<Self> {
        let bytes = offsets.desc as usize + ENTRIES as usize * size_of::<T>();
        let map = Map::new(bytes, Some((socket, page)))?;
        let (produced_at, consumed_at) = (offsets.producer as usize, offsets.consumer as usize);
        let entries_at = offsets.desc as usize;
        let fits = |at: usize| at.is_multiple_of(4) && at + 4 <= entries_at;
        if !fits(produced_at) || !fits(consumed_at) || !entries_at.is_multiple_of(align_of::<T>()) {
            return Err(io::Error::other("the kernel's rings are laid out in another way"));
        }
        Ok(Ring { map, produced_at, consumed_at, entries_at, position: 0, entries: PhantomData })
    }

    fn counter(&self, at: usize) -> &AtomicU32 {
        // SAFETY: `map` has checked that it is an aligned word of the mapping, which lives as long as
        // the ring. The kernel reads and writes it as an atomic of the same size.
        unsafe { AtomicU32::from_ptr(self.map.base.as_ptr().add(at).cast()) }
    }

    fn entry(&self) -> *mut T {
        let index = (self.position & (ENTRIES - 1)) as usize;
        // SAFETY: the mapping has `ENTRIES` entries from there on, and the index is below that.
        unsafe { self.map.base.as_ptr().add(self.entries_at).cast::<T>().add(index) }
    }

    /// As the consumer: entries that can be taken.
    fn waiting(&self) -> u32 {
        self.counter(self.produced_at).load(Acquire).wrapping_sub(self.position).min(ENTRIES)
    }

    /// As the consumer: the next of those that wait.
    fn take(&mut self) -> T {
        // SAFETY: within the mapping and aligned; the kernel has written it before it moved its
        // position, and does not again before ours has passed.
        let entry = unsafe { self.entry().read() };
        self.position = self.position.wrapping_add(1);
        entry
    }

    /// As the consumer: lets the kernel have the places of what was taken.
    fn release(&mut self) {
        self.counter(self.consumed_at).store(self.position, Release);
    }

    /// As the producer: how many entries have a place.
    fn room(&self) -> u32 {
        ENTRIES.saturating_sub(self.unconsumed())
    }

    /// As the producer: what the kernel has not taken yet.
    fn unconsumed(&self) -> u32 {
        self.position.wrapping_sub(self.counter(self.consumed_at).load(Acquire))
    }

    /// As the producer: writes the next entry, where there is room.
    fn put(&mut self, entry: T) {
        // SAFETY: within the mapping and aligned; the kernel has read what was there before, and does
        // not look again before our position has passed.
        unsafe { self.entry().write(entry) };
        self.position = self.position.wrapping_add(1);
    }

    /// As the producer: shows what was put.
    fn publish(&mut self) {
        self.counter(self.produced_at).store(self.position, Release);
    }
}

/// The socket with its memory.
pub(super) struct Rings {
    socket: OwnedFd,
    memory: Map,
    fill: Ring<u64>,
    rx: Ring<libc::xdp_desc>,
    tx: Ring<libc::xdp_desc>,
    completion: Ring<u64>,
    /// Bytes of the largest frame to be sent.
    frame_bytes: usize,
    /// Chunks of each place to send from.
    chunks: u32,
    /// Of each place, how many chunks the kernel holds.
    under_way: Vec<u32>,
    /// Places to send from that are ours. The last is the next: it is still in the cache.
    free: Vec<u32>,
}

impl Rings {
    /// A socket on a queue of an interface, for frames of so many bytes, in pieces if they may be and need be.
    ///
    /// # Errors
    /// What the system says: without rights, or where the queue is another's or is not there.
    pub(super) fn open(
        interface: u32,
        queue: u32,
        frame_bytes: usize,
        in_pieces: bool,
    ) -> io::Result<Self> {
        // SAFETY: it takes no pointers.
        let socket = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, and nobody else's.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let memory = Map::new(2 * ENTRIES as usize * CHUNK_BYTES, None)?;
        let register = libc::xdp_umem_reg {
            addr: memory.base.as_ptr() as u64,
            len: memory.bytes as u64,
            chunk_size: CHUNK_BYTES as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set(&socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &register)?;
        for ring in [
            libc::XDP_UMEM_FILL_RING,
            libc::XDP_UMEM_COMPLETION_RING,
            libc::XDP_RX_RING,
            libc::XDP_TX_RING,
        ] {
            set(&socket, libc::SOL_XDP, ring, &ENTRIES)?;
        }
        // Less is slower, not wrong.
        let _ = set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER_BYTES);
        let offsets = offsets(&socket)?;
        let fd = socket.as_fd();
        let in_pieces = in_pieces && frame_bytes > MAX_PIECE_BYTES;
        let frame_bytes =
            frame_bytes.min(if in_pieces { MAX_FRAME_BYTES } else { MAX_PIECE_BYTES });
        let chunks = (frame_bytes.div_ceil(CHUNK_BYTES) as u32).max(1);
        let mut rings = Rings {
            fill: Ring::map(fd, libc::XDP_UMEM_PGOFF_FILL_RING, &offsets.fr)?,
            completion: Ring::map(fd, libc::XDP_UMEM_PGOFF_COMPLETION_RING, &offsets.cr)?,
            rx: Ring::map(fd, libc::XDP_PGOFF_RX_RING as u64, &offsets.rx)?,
            tx: Ring::map(fd, libc::XDP_PGOFF_TX_RING as u64, &offsets.tx)?,
            memory,
            frame_bytes,
            chunks,
            under_way: vec![0; (ENTRIES / chunks) as usize],
            free: (0..ENTRIES / chunks).collect(),
            socket,
        };
        (0..ENTRIES).for_each(|chunk| rings.fill.put(u64::from(chunk) * CHUNK_BYTES as u64));
        rings.fill.publish();
        let mut address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: if in_pieces { libc::XDP_USE_SG } else { 0 },
            sxdp_ifindex: interface,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        loop {
            let bound = once_let_go(|| {
                // SAFETY: the address is of the kind and the length that the call is told.
                let bound = unsafe {
                    let length = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
                    libc::bind(rings.socket.as_raw_fd(), (&raw const address).cast(), length)
                };
                if bound == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
            });
            match bound {
                Ok(()) => return Ok(rings),
                // It knows no frames in pieces.
                Err(error)
                    if error.raw_os_error() == Some(libc::EINVAL) && address.sxdp_flags != 0 =>
                {
                    address.sxdp_flags = 0;
                    rings.frame_bytes = MAX_PIECE_BYTES;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Bytes of the largest frame that can be sent.
    pub(super) fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    /// Shows so many of the frames that have come, at most, piece by piece, and with each whether it is the
    /// last of its frame.
    pub(super) fn receive(&mut self, most: usize, mut see: impl FnMut(&[u8], bool)) {
        let waiting = self.rx.waiting();
        let (mut pieces, mut frames) = (0, 0);
        while pieces < waiting && frames < most {
            let libc::xdp_desc { addr, len, options } = self.rx.take();
            let chunk = addr - addr % CHUNK_BYTES as u64;
            let (start, len) = (addr as usize, len as usize);
            let is_last = options & libc::XDP_PKT_CONTD == 0;
            // The kernel names what it was given; nothing is believed that would leave the chunk.
            if start + len <= chunk as usize + CHUNK_BYTES
                && chunk < u64::from(ENTRIES) * CHUNK_BYTES as u64
            {
                // SAFETY: within a chunk to receive into, which came back in `rx` and is ours until
                // it is published below.
                let piece = unsafe {
                    std::slice::from_raw_parts(self.memory.base.as_ptr().add(start), len)
                };
                see(piece, is_last);
                self.fill.put(chunk);
            }
            pieces += 1;
            frames += usize::from(is_last);
        }
        if pieces > 0 {
            self.rx.release();
            self.fill.publish();
        }
    }

    /// Takes a frame to be sent, which `write` fills; it says with how many bytes, `None` for not at
    /// all. Whether the frame goes: false also if all places are under way.
    pub(super) fn send(&mut self, write: impl FnOnce(&mut [u8]) -> Option<usize>) -> bool {
        if self.free.is_empty() || self.tx.room() < self.chunks {
            // What waits has to go first. If it cannot, the next flush says so.
            let _ = self.flush();
        }
        let Some(place) = self.free.last().copied().filter(|_| self.tx.room() >= self.chunks)
        else {
            return false;
        };
        let first = ENTRIES + place * self.chunks;
        let start = first as usize * CHUNK_BYTES;
        // SAFETY: within the memory: a place is as many chunks, all of which are ours as long as it is in
        // `free`, and the largest frame is no longer.
        let frame = unsafe {
            std::slice::from_raw_parts_mut(self.memory.base.as_ptr().add(start), self.frame_bytes)
        };
        let Some(len) = write(frame).map(|len| len.min(self.frame_bytes)).filter(|len| *len > 0)
        else {
            return false;
        };
        self.free.pop();
        self.under_way[place as usize] = len.div_ceil(CHUNK_BYTES) as u32;
        for at in (0..len).step_by(CHUNK_BYTES) {
            let rest = len - at;
            self.tx.put(libc::xdp_desc {
                addr: (start + at) as u64,
                len: rest.min(CHUNK_BYTES) as u32,
                options: if rest > CHUNK_BYTES { libc::XDP_PKT_CONTD } else { 0 },
            });
        }
        true
    }

    /// Has the kernel send what was taken.
    ///
    /// # Errors
    /// What the socket says; that it takes no more for now is none.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.tx.publish();
        for _ in 0..MAX_KICKS {
            if self.tx.unconsumed() == 0 {
                break;
            }
            // SAFETY: an empty datagram to nobody: no pointer is followed.
            let sent = unsafe {
                let (fd, none) = (self.socket.as_raw_fd(), std::ptr::null());
                libc::sendto(fd, none, 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
            };
            if sent < 0 {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    // It sends so many at a time, or the other side's queue is full.
                    Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR) => {}
                    // The interface is down: as if it were lost on the way.
                    Some(libc::ENETDOWN) => break,
                    _ => return Err(error),
                }
            }
        }
        self.reap();
        Ok(())
    }

    /// Takes back places whose frames were sent.
    fn reap(&mut self) {
        for _ in 0..self.completion.waiting() {
            let chunk = self.completion.take() / CHUNK_BYTES as u64;
            let place = chunk.saturating_sub(ENTRIES.into()) / u64::from(self.chunks);
            // The kernel names what it was given.
            let Some(held) = self.under_way.get_mut(place as usize).filter(|held| **held > 0)
            else {
                continue;
            };
            *held -= 1;
            if *held == 0 {
                self.free.push(place as u32);
            }
        }
        self.completion.release();
    }
}

impl AsFd for Rings {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn set<T>(socket: &OwnedFd, level: i32, option: i32, value: &T) -> io::Result<()> {
    // SAFETY: the value lives until the call returns and has the length that it is told; the options
    // used here take plain numbers.
    let set = unsafe {
        let length = size_of::<T>() as libc::socklen_t;
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            length,
        )
    };
    if set != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn offsets(socket: &OwnedFd) -> io::Result<libc::xdp_mmap_offsets> {
    let none = libc::xdp_ring_offset { producer: 0, consumer: 0, desc: 0, flags: 0 };
    let mut offsets = libc::xdp_mmap_offsets { rx: none, tx: none, fr: none, cr: none };
    let mut length = size_of::<libc::xdp_mmap_offsets>() as libc::socklen_t;
    // SAFETY: it writes at most as many bytes as it is told there are, all of plain numbers.
    let got = unsafe {
        let (fd, option) = (socket.as_raw_fd(), libc::XDP_MMAP_OFFSETS);
        libc::getsockopt(fd, libc::SOL_XDP, option, (&raw mut offsets).cast(), &raw mut length)
    };
    match got {
        0 if length as usize == size_of::<libc::xdp_mmap_offsets>() => Ok(offsets),
        0 => Err(io::Error::other("the kernel's AF_XDP is older than 5.4")),
        _ => Err(io::Error::last_os_error()),
    }
}
