//! A listener on a Unix socket: its file, its mode, its removal.
//!
//! The socket is bound beside its place with its mode, and renamed there: nobody can connect before
//! the mode holds, and the file of a server that is dead is replaced in one step. A file whose
//! server accepts connections is left, and so is one that is no socket.
//!
//! A connection is handed on as a TCP stream: reading, writing and shutting down are the same
//! system calls for both, and nothing else is asked of a Unix one.

use std::fs::{self, Metadata, Permissions};
use std::io::{Error as IoError, ErrorKind, Result as IoResult};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use mio::net::TcpStream;
use siltstone_engine::{Error, Result};

/// A bound socket. Its file is removed when it is dropped.
pub(crate) struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode, so that the file of a later server is not removed.
    id: (u64, u64),
}

impl UnixSocket {
    /// Binds a socket whose file has these permissions.
    pub(crate) fn bind(path: &Path, mode: u32) -> Result<Self> {
        let failed = |error: IoError| Error::io("listen on", path.display().to_string(), &error);
        Self::check(path)?;
        let mut draft = path.as_os_str().to_owned();
        draft.push(".new");
        let draft = PathBuf::from(draft);
        let bind = || -> IoResult<(UnixListener, Metadata)> {
            if is_socket(&draft) {
                fs::remove_file(&draft)?;
            }
            let listener = UnixListener::bind(&draft)?;
            listener.set_nonblocking(true)?;
            fs::set_permissions(&draft, Permissions::from_mode(mode))?;
            fs::rename(&draft, path)?;
            Ok((listener, fs::symlink_metadata(path)?))
        };
        let (listener, metadata) = bind().map_err(failed)?;
        Ok(UnixSocket { listener, path: path.to_owned(), id: (metadata.dev(), metadata.ino()) })
    }

    /// Checks whether a socket can be bound here.
    pub(crate) fn check(path: &Path) -> Result<()> {
        let failed = |error: IoError| Error::io("listen on", path.display().to_string(), &error);
        if fs::symlink_metadata(path).is_err() {
            return Ok(());
        }
        let refusal = match UnixStream::connect(path) {
            _ if !is_socket(path) => "the file exists and is no socket".to_owned(),
            Ok(_) => "another server listens there".to_owned(),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        Err(failed(IoError::new(ErrorKind::AddrInUse, refusal)))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The listener again, for a poll.
    pub(crate) fn pollable(&self) -> IoResult<mio::net::UnixListener> {
        self.listener.try_clone().map(mio::net::UnixListener::from_std)
    }

    /// Accepts a connection.
    pub(crate) fn accept(&self) -> IoResult<TcpStream> {
        let (stream, _) = self.listener.accept()?;
        stream.set_nonblocking(true)?;
        Ok(TcpStream::from_std(std::net::TcpStream::from(OwnedFd::from(stream))))
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        let found = fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| (found.dev(), found.ino()) == self.id) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}
