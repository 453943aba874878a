//! A `siltstone serve` process, and one client of it. The process ends with its test, also if the
//! test fails.

#![allow(dead_code, reason = "each test is a crate and uses a part")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

pub(crate) struct Server {
    child: Child,
    address: String,
    stream: BufReader<TcpStream>,
}

impl Server {
    /// Starts the command, which listens on any port, and connects.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let (mut line, mut errors) = (String::new(), String::new());
        while !line.starts_with("serving ") {
            errors += &std::mem::take(&mut line);
            assert!(lines.read_line(&mut line).unwrap() > 0, "no server: {errors}");
        }
        let address = line.trim_end().rsplit(' ').next().unwrap().to_owned();
        let stream = TcpStream::connect(&address).unwrap();
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Server { child, address, stream: BufReader::new(stream) }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn address(&self) -> String {
        self.address.clone()
    }

    /// Sends SIGKILL, and waits for the end.
    pub(crate) fn kill(self) {
        drop(self);
    }

    /// Sends a command of words without spaces; returns the first line of the reply, or a bulk
    /// value.
    pub(crate) fn send(&mut self, command: &str) -> String {
        self.try_send(command).unwrap()
    }

    /// The same; `None` when the server has gone.
    pub(crate) fn try_send(&mut self, command: &str) -> Option<String> {
        self.stream.get_mut().write_all(format!("{command}\r\n").as_bytes()).ok()?;
        let mut line = String::new();
        self.stream.read_line(&mut line).ok().filter(|&read| read > 0)?;
        if let Some(length) = line.strip_prefix('$').filter(|it| !it.starts_with('-')) {
            let mut value = vec![0; length.trim_end().parse::<usize>().unwrap() + 2];
            self.stream.read_exact(&mut value).ok()?;
            line = String::from_utf8(value).unwrap();
        }
        Some(line.trim_end().to_owned())
    }

    pub(crate) fn terminate(mut self) {
        kill_process(self.pid(), Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

/// Another client.
pub(crate) struct Connection(BufReader<TcpStream>);

impl Connection {
    pub(crate) fn open(address: &str) -> Self {
        Connection(BufReader::new(TcpStream::connect(address).unwrap()))
    }

    /// Sends commands, and returns a number of lines of the replies; `None` when the server has
    /// gone.
    pub(crate) fn lines(&mut self, commands: &str, count: usize) -> Option<Vec<String>> {
        self.0.get_mut().write_all(format!("{commands}\r\n").as_bytes()).ok()?;
        let mut line = || {
            let mut line = String::new();
            self.0.read_line(&mut line).ok().filter(|_| line.ends_with('\n'))?;
            Some(line.trim_end().to_owned())
        };
        (0..count).map(|_| line()).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Without effect on a process that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
