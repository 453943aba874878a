//! The XDP program: redirects datagrams for our ports to AF_XDP sockets, passes everything else.
//!
//! ```text
//! frame ─ complete headers? IPv4 without options? no fragment? UDP? our address? one of our ports?
//!           │ no: to the kernel                                        │ yes
//!           ▼                                                                  ▼
//!         pass                              map: queue ─▶ socket; pass if the queue has none
//! ```
//!
//! About 30 instructions, generated for the address and the ports, and checked by the kernel's
//! verifier at load. It inspects only what it needs to select; the frame is validated by its reader
//! ([`super::frame`]).
//!
//! The attachment is a file descriptor, so it ends when the [`Program`] is dropped or the process
//! ends.
//!
//! Source: Linux, `include/uapi/linux/bpf.h`; RFC 9669 for the instructions.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::retry_busy::retry_while_busy;

/// Queues that may have a socket.
const MAX_QUEUES: u32 = 64;
/// Maximum ports of a program, limited by the range of jumps.
pub(super) const MAX_PORTS: usize = 256;

/// Commands of bpf(2).
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const PROGRAM_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
/// Types of maps, programs and attachments.
const MAP_OF_SOCKETS: u32 = 17;
const PROGRAM_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// Generic mode, for drivers without XDP.
const ATTACH_GENERIC: u32 = 1 << 1;
/// The program accepts multi-buffer frames, and inspects the first buffer only.
const MULTI_BUFFER: u32 = 1 << 5;

/// An attached program.
pub struct Program {
    sockets: OwnedFd,
    _program: OwnedFd,
    _attached: OwnedFd,
    is_multi_buffer: bool,
}

impl Program {
    /// Attaches a program to an interface, by its index.
    ///
    /// # Errors
    /// System errors: usually missing capabilities, or another program is attached and stays.
    pub(super) fn attach(interface: u32, address: Ipv4Addr, ports: &[u16]) -> io::Result<Self> {
        let sockets = bpf(MAP_CREATE, &[MAP_OF_SOCKETS, 4, 4, MAX_QUEUES])?;
        let code = code(sockets.as_raw_fd(), address, ports);
        let mut failed = None;
        // Driver mode matters more than multi-buffer frames.
        for (attach, load_as) in
            [(0, MULTI_BUFFER), (0, 0), (ATTACH_GENERIC, MULTI_BUFFER), (ATTACH_GENERIC, 0)]
        {
            let attached = load(&code, load_as).and_then(|program| {
                let fd = program.as_raw_fd() as u32;
                let link = [fd, interface, ATTACH_XDP, attach];
                Ok((retry_while_busy(|| bpf(LINK_CREATE, &link))?, program))
            });
            match attached {
                Ok((_attached, _program)) => {
                    let is_multi_buffer = load_as == MULTI_BUFFER;
                    return Ok(Program { sockets, _program, _attached, is_multi_buffer });
                }
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => return Err(error),
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    let text = format!("{error}: another program is attached, see `ip link show`");
                    return Err(io::Error::new(error.kind(), text));
                }
                // The first error is that of the mode that most kernels support.
                Err(error) => drop(failed.get_or_insert(error)),
            }
        }
        Err(failed.unwrap_or_else(|| io::ErrorKind::Unsupported.into()))
    }

    /// Whether frames may span several buffers.
    pub(super) fn is_multi_buffer(&self) -> bool {
        self.is_multi_buffer
    }

    /// Redirects the frames of a queue to this socket.
    ///
    /// # Errors
    /// If the queue index is too large.
    pub(super) fn redirect(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let value = socket.as_raw_fd() as u32;
        let update = Update {
            map: self.sockets.as_raw_fd() as u32,
            _pad: 0,
            key: (&raw const queue) as u64,
            value: (&raw const value) as u64,
            flags: 0,
        };
        call(MAP_UPDATE, &update).map(drop)
    }
}

#[repr(C)]
struct Update {
    map: u32,
    _pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct Load {
    kind: u32,
    count: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach: u32,
}

fn load(code: &[Instruction], flags: u32) -> io::Result<OwnedFd> {
    let mut log = vec![0u8; 16 << 10];
    let load = Load {
        kind: PROGRAM_XDP,
        count: code.len() as u32,
        code: code.as_ptr() as u64,
        license: c"Apache-2.0".as_ptr() as u64,
        log_level: 1,
        log_bytes: log.len() as u32,
        log: log.as_mut_ptr() as u64,
        flags,
        attach: ATTACH_XDP,
        ..Load::default()
    };
    let loaded = call(PROGRAM_LOAD, &load).map_err(|error| {
        let message = String::from_utf8_lossy(&log);
        let message = message.trim_matches(['\0', '\n', ' ']);
        io::Error::new(error.kind(), format!("{error} {message}").trim_end().to_owned())
    })?;
    // SAFETY: a new descriptor with no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(loaded) })
}

/// Runs a command that creates an object and has plain words as attributes.
fn bpf(command: libc::c_int, words: &[u32; 4]) -> io::Result<OwnedFd> {
    let created = call(command, words)?;
    // SAFETY: a new descriptor with no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(created) })
}

fn call<T>(command: libc::c_int, attributes: &T) -> io::Result<RawFd> {
    // SAFETY: the attributes are laid out as the command's are, with the length passed (the kernel
    // takes omitted ones for zeros), and what they point to lives until the call returns. The log
    // is written within its length.
    let result = unsafe {
        let attributes = std::ptr::from_ref(attributes);
        libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as RawFd) }
}

/// An eBPF instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
struct Instruction {
    code: u8,
    /// Destination in the low four bits, source in the high ones.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// Loads of 1, 2 and 4 bytes.
const LOAD_8: u8 = 0x71;
const LOAD_16: u8 = 0x69;
const LOAD_32: u8 = 0x61;
const LOAD_IMMEDIATE_64: u8 = 0x18;
const MOVE: u8 = 0xbf;
const MOVE_IMMEDIATE: u8 = 0xb7;
const ADD_IMMEDIATE: u8 = 0x07;
const AND_IMMEDIATE: u8 = 0x57;
const JUMP: u8 = 0x05;
const JUMP_IF_GREATER: u8 = 0x2d;
/// These two compare 32 bits.
const JUMP_IF: u8 = 0x16;
const JUMP_IF_NOT: u8 = 0x56;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// Helper that redirects a frame to a socket in a map.
const REDIRECT_MAP: i32 = 51;
/// Source register of an immediate that names a map.
const IS_MAP: u8 = 1;
const XDP_PASS: i32 = 2;

/// Generates the program for a map, an address and ports.
fn code(map: RawFd, address: Ipv4Addr, ports: &[u16]) -> Vec<Instruction> {
    // Placeholder for jumps to the pass exit, patched at the end.
    const TO_PASS: i16 = i16::MAX;
    let op = |code, to: u8, from: u8, offset, immediate| Instruction {
        code,
        registers: from << 4 | to,
        offset,
        immediate,
    };
    // Fields are loaded in network byte order.
    let wire16 = |value: u16| i32::from(u16::from_ne_bytes(value.to_be_bytes()));
    let wire32 = i32::from_ne_bytes(address.octets());
    let mut code = vec![
        // r1: the context, saved in r6. r2 is the start of the frame, r3 its end.
        op(MOVE, 6, 1, 0, 0),
        op(LOAD_32, 2, 1, 0, 0),
        op(LOAD_32, 3, 1, 4, 0),
        op(MOVE, 4, 2, 0, 0),
        op(ADD_IMMEDIATE, 4, 0, 0, super::frame::HEADERS_BYTES as i32),
        op(JUMP_IF_GREATER, 4, 3, TO_PASS, 0),
        op(LOAD_16, 5, 2, 12, 0),
        op(JUMP_IF_NOT, 5, 0, TO_PASS, wire16(0x0800)),
        op(LOAD_8, 5, 2, 14, 0),
        op(JUMP_IF_NOT, 5, 0, TO_PASS, 0x45),
        op(LOAD_8, 5, 2, 23, 0),
        op(JUMP_IF_NOT, 5, 0, TO_PASS, 17),
        op(LOAD_16, 5, 2, 20, 0),
        op(AND_IMMEDIATE, 5, 0, 0, wire16(0x3fff)),
        op(JUMP_IF_NOT, 5, 0, TO_PASS, 0),
        op(LOAD_32, 5, 2, 30, 0),
        op(JUMP_IF_NOT, 5, 0, TO_PASS, wire32),
        op(LOAD_16, 5, 2, 36, 0),
    ];
    let ports = &ports[..ports.len().min(MAX_PORTS)];
    for (at, port) in ports.iter().enumerate() {
        // Over the remaining port tests and the jump after them.
        code.push(op(JUMP_IF, 5, 0, (ports.len() - at) as i16, wire16(*port)));
    }
    code.push(op(JUMP, 0, 0, TO_PASS, 0));
    code.extend([
        op(LOAD_32, 2, 6, 16, 0),
        op(LOAD_IMMEDIATE_64, 1, IS_MAP, 0, map),
        op(0, 0, 0, 0, 0),
        op(MOVE_IMMEDIATE, 3, 0, 0, XDP_PASS),
        op(CALL, 0, 0, 0, REDIRECT_MAP),
        op(EXIT, 0, 0, 0, 0),
    ]);
    let pass = code.len();
    code.extend([op(MOVE_IMMEDIATE, 0, 0, 0, XDP_PASS), op(EXIT, 0, 0, 0, 0)]);
    for (at, instruction) in code.iter_mut().enumerate() {
        if instruction.offset == TO_PASS {
            instruction.offset = (pass - at - 1) as i16;
        }
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Conditions of the kernel's verifier that can be checked without it: jumps go forward and
    /// stay within the program.
    #[test]
    fn jumps_target_the_pass_or_redirect_block() {
        for count in [1, 2, MAX_PORTS] {
            let ports: Vec<u16> = (0..count as u16).map(|port| 6380 + port).collect();
            let code = code(7, Ipv4Addr::new(10, 0, 0, 1), &ports);
            let pass = code.len() - 2;
            let redirect = pass - 6;
            let mut jumps = 0;
            for (at, instruction) in code.iter().enumerate() {
                let to = (at as i64 + 1 + i64::from(instruction.offset)) as usize;
                match instruction.code {
                    JUMP | JUMP_IF_GREATER | JUMP_IF_NOT => assert_eq!(to, pass),
                    JUMP_IF => assert_eq!(to, redirect),
                    _ => continue,
                }
                jumps += 1;
            }
            // The bounds check, five fields, the jump after the ports.
            assert_eq!(jumps, 7 + count);
        }
    }
}
