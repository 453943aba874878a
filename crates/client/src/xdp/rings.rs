//! An AF_XDP socket: frame memory shared with the kernel, and four rings of descriptors.
//!
//! ```text
//!                    receive chunks                     send chunks
//! memory             0 ....................... N−1      N ....................... 2N−1
//!                                                       │ place │ place │ place │ …
//!
//! fill        ours ─▶ kernel   free chunks              tx          ours ─▶ kernel   frames to send
//! rx        kernel ─▶ ours     received frames         completion  kernel ─▶ ours   sent frames
//! ```
//!
//! A ring is a producer position, a consumer position and N entries, mapped from the socket. Each
//! side writes its own position and reads the other's. N is a power of two; positions increase and
//! wrap.
//!
//! A frame longer than a chunk spans several, one entry each, all but the last flagged as
//! continued. The chunks of a frame to send are contiguous: a *place* holds the largest frame, so
//! it is written at once.
//!
//! Invariant: each chunk has one owner: the kernel from its publication in `fill` or `tx` until it
//! returns in `rx` or `completion`, otherwise this program. Chunks owned by the kernel are not
//! touched.
//!
//! Source: Linux, `Documentation/networking/af_xdp.rst` and `include/uapi/linux/if_xdp.h`.

use std::io;
use std::marker::PhantomData;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use super::retry_busy::retry_while_busy;

/// Entries per ring, and chunks per direction.
const ENTRIES: u32 = 512;
/// Bytes per chunk.
const CHUNK_BYTES: usize = 4096;
/// Headroom that the kernel reserves before a received frame.
const HEADROOM_BYTES: usize = 256;
/// Largest frame that can be received in one chunk.
const MAX_CHUNK_FRAME_BYTES: usize = CHUNK_BYTES - HEADROOM_BYTES;
/// Largest frame over several chunks, limited by the fragments that the kernel sends as one.
const MAX_FRAME_BYTES: usize = 16 * CHUNK_BYTES;
/// Send buffer of the socket, in bytes of kernel memory.
const SEND_BUFFER_BYTES: libc::c_int = 16 << 20;
/// Maximum send calls per flush; the rest waits for the next flush.
const MAX_SEND_CALLS: usize = 64;

/// A memory mapping, unmapped on drop.
struct Map {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is not bound to a thread.
unsafe impl Send for Map {}

impl Map {
    fn new(bytes: usize, of: Option<(BorrowedFd<'_>, u64)>) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the addresses, so no mapping in use is replaced.
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
        // SAFETY: mapped with this length, and every pointer into it is in the struct that owns it.
        // The kernel holds the pages itself. A failure would leave it mapped, which is harmless.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// A ring of entries of one type. This program is always its producer, or always its consumer.
struct Ring<T> {
    map: Map,
    produced_at: usize,
    consumed_at: usize,
    entries_at: usize,
    /// This program's position.
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
        // SAFETY: `map` has checked that it is an aligned word of the mapping, which lives as long
        // as the ring. The kernel accesses it as an atomic of the same size.
        unsafe { AtomicU32::from_ptr(self.map.base.as_ptr().add(at).cast()) }
    }

    fn entry(&self) -> *mut T {
        let index = (self.position & (ENTRIES - 1)) as usize;
        // SAFETY: the mapping has `ENTRIES` entries from there on, and the index is below that.
        unsafe { self.map.base.as_ptr().add(self.entries_at).cast::<T>().add(index) }
    }

    /// Consumer: number of available entries.
    fn waiting(&self) -> u32 {
        self.counter(self.produced_at).load(Acquire).wrapping_sub(self.position).min(ENTRIES)
    }

    /// Consumer: takes the next available entry.
    fn take(&mut self) -> T {
        // SAFETY: within the mapping and aligned; the kernel has written it before it advanced its
        // position, and does not write it again before ours has passed.
        let entry = unsafe { self.entry().read() };
        self.position = self.position.wrapping_add(1);
        entry
    }

    /// Consumer: returns the slots of taken entries to the kernel.
    fn release(&mut self) {
        self.counter(self.consumed_at).store(self.position, Release);
    }

    /// Producer: number of free slots.
    fn room(&self) -> u32 {
        ENTRIES.saturating_sub(self.unconsumed())
    }

    /// Producer: entries that the kernel has not taken yet.
    fn unconsumed(&self) -> u32 {
        self.position.wrapping_sub(self.counter(self.consumed_at).load(Acquire))
    }

    /// Producer: writes the next entry, if there is a free slot.
    fn put(&mut self, entry: T) {
        // SAFETY: within the mapping and aligned; the kernel has read the previous entry, and does
        // not read this one before our position has passed.
        unsafe { self.entry().write(entry) };
        self.position = self.position.wrapping_add(1);
    }

    /// Producer: makes written entries visible to the kernel.
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
    /// Maximum size of a frame to send, in bytes.
    frame_bytes: usize,
    /// Chunks per send place.
    chunks: u32,
    /// Per send place, how many chunks the kernel owns.
    kernel_chunks: Vec<u32>,
    /// Free send places. The last is used next: it is still in the CPU cache.
    free: Vec<u32>,
}

impl Rings {
    /// Opens a socket on a queue of an interface, for frames of up to `frame_bytes`, multi-buffer
    /// if allowed and needed.
    ///
    /// # Errors
    /// System errors: missing capabilities, or a queue that is in use or does not exist.
    pub(super) fn open(
        interface: u32,
        queue: u32,
        frame_bytes: usize,
        multi_buffer: bool,
    ) -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let socket = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor with no other owner.
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
        // Optional: a smaller buffer is only slower.
        let _ = set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER_BYTES);
        let offsets = offsets(&socket)?;
        let fd = socket.as_fd();
        let multi_buffer = multi_buffer && frame_bytes > MAX_CHUNK_FRAME_BYTES;
        let frame_bytes =
            frame_bytes.min(if multi_buffer { MAX_FRAME_BYTES } else { MAX_CHUNK_FRAME_BYTES });
        let chunks = (frame_bytes.div_ceil(CHUNK_BYTES) as u32).max(1);
        let mut rings = Rings {
            fill: Ring::map(fd, libc::XDP_UMEM_PGOFF_FILL_RING, &offsets.fr)?,
            completion: Ring::map(fd, libc::XDP_UMEM_PGOFF_COMPLETION_RING, &offsets.cr)?,
            rx: Ring::map(fd, libc::XDP_PGOFF_RX_RING as u64, &offsets.rx)?,
            tx: Ring::map(fd, libc::XDP_PGOFF_TX_RING as u64, &offsets.tx)?,
            memory,
            frame_bytes,
            chunks,
            kernel_chunks: vec![0; (ENTRIES / chunks) as usize],
            free: (0..ENTRIES / chunks).collect(),
            socket,
        };
        (0..ENTRIES).for_each(|chunk| rings.fill.put(u64::from(chunk) * CHUNK_BYTES as u64));
        rings.fill.publish();
        let mut address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: if multi_buffer { libc::XDP_USE_SG } else { 0 },
            sxdp_ifindex: interface,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        loop {
            let bound = retry_while_busy(|| {
                // SAFETY: the address has the type and the length passed.
                let bound = unsafe {
                    let length = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
                    libc::bind(rings.socket.as_raw_fd(), (&raw const address).cast(), length)
                };
                if bound == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
            });
            match bound {
                Ok(()) => return Ok(rings),
                // The kernel does not support multi-buffer frames here.
                Err(error)
                    if error.raw_os_error() == Some(libc::EINVAL) && address.sxdp_flags != 0 =>
                {
                    address.sxdp_flags = 0;
                    rings.frame_bytes = MAX_CHUNK_FRAME_BYTES;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Maximum size of a frame to send, in bytes.
    pub(super) fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    /// Passes up to `max_frames` received frames to `visit`, buffer by buffer, with whether it is
    /// the frame's last.
    pub(super) fn receive(&mut self, max_frames: usize, mut visit: impl FnMut(&[u8], bool)) {
        let waiting = self.rx.waiting();
        let (mut chunks_read, mut frames) = (0, 0);
        while chunks_read < waiting && frames < max_frames {
            let libc::xdp_desc { addr, len, options } = self.rx.take();
            let chunk = addr - addr % CHUNK_BYTES as u64;
            let (start, len) = (addr as usize, len as usize);
            let is_last = options & libc::XDP_PKT_CONTD == 0;
            // The kernel returns what it was given; an address outside the chunk is ignored.
            if start + len <= chunk as usize + CHUNK_BYTES
                && chunk < u64::from(ENTRIES) * CHUNK_BYTES as u64
            {
                // SAFETY: within a receive chunk, which came back in `rx` and belongs to us until
                // it is published below.
                let part = unsafe {
                    std::slice::from_raw_parts(self.memory.base.as_ptr().add(start), len)
                };
                visit(part, is_last);
                self.fill.put(chunk);
            }
            chunks_read += 1;
            frames += usize::from(is_last);
        }
        if chunks_read > 0 {
            self.rx.release();
            self.fill.publish();
        }
    }

    /// Queues a frame that `write` fills and whose length it returns, `None` to drop it. Returns
    /// whether the frame was queued; false also if no place is free.
    pub(super) fn send(&mut self, write: impl FnOnce(&mut [u8]) -> Option<usize>) -> bool {
        if self.free.is_empty() || self.tx.room() < self.chunks {
            // Queued frames have to go first. If that fails, the next flush reports it.
            let _ = self.flush();
        }
        let Some(place) = self.free.last().copied().filter(|_| self.tx.room() >= self.chunks)
        else {
            return false;
        };
        let first = ENTRIES + place * self.chunks;
        let start = first as usize * CHUNK_BYTES;
        // SAFETY: within the memory: a place has `chunks` chunks, all of which belong to us while
        // it is in `free`, and the largest frame is no longer.
        let frame = unsafe {
            std::slice::from_raw_parts_mut(self.memory.base.as_ptr().add(start), self.frame_bytes)
        };
        let Some(len) = write(frame).map(|len| len.min(self.frame_bytes)).filter(|len| *len > 0)
        else {
            return false;
        };
        self.free.pop();
        self.kernel_chunks[place as usize] = len.div_ceil(CHUNK_BYTES) as u32;
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

    /// Makes the kernel send queued frames.
    ///
    /// # Errors
    /// Socket errors; a full queue is not one.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.tx.publish();
        for _ in 0..MAX_SEND_CALLS {
            if self.tx.unconsumed() == 0 {
                break;
            }
            // SAFETY: an empty datagram without a destination: no pointer is followed.
            let sent = unsafe {
                let (fd, none) = (self.socket.as_raw_fd(), std::ptr::null());
                libc::sendto(fd, none, 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
            };
            if sent < 0 {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    // It sends a limited number per call, or the receiver's queue is full.
                    Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR) => {}
                    // The interface is down: treated as loss in the network.
                    Some(libc::ENETDOWN) => break,
                    _ => return Err(error),
                }
            }
        }
        self.reap();
        Ok(())
    }

    /// Reclaims the places of sent frames.
    fn reap(&mut self) {
        for _ in 0..self.completion.waiting() {
            let chunk = self.completion.take() / CHUNK_BYTES as u64;
            let place = chunk.saturating_sub(ENTRIES.into()) / u64::from(self.chunks);
            // The kernel returns what it was given.
            let Some(owned) =
                self.kernel_chunks.get_mut(place as usize).filter(|owned| **owned > 0)
            else {
                continue;
            };
            *owned -= 1;
            if *owned == 0 {
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
    // SAFETY: the value lives until the call returns and has the length passed; the options
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
    // SAFETY: writes at most the number of bytes passed, all of plain numbers.
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
