//! Fenced blocks of a chapter, and a shell session that runs them.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command as Process, Stdio};

/// A fenced block.
pub(crate) struct Block {
    /// The text after the fence.
    pub(crate) kind: String,
    pub(crate) body: String,
    /// The commands of a console block.
    pub(crate) commands: Vec<Command>,
}

/// A command and its output.
pub(crate) struct Command {
    /// The input of the shell.
    pub(crate) line: String,
    /// The input with its prompts, as in the book.
    pub(crate) shown: String,
    pub(crate) output: String,
}

/// The fenced blocks of a text, in order.
pub(crate) fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.split_inclusive('\n');
    while let Some(line) = lines.next() {
        let ticks = line.len() - line.trim_start_matches('`').len();
        if ticks < 3 {
            continue;
        }
        let (fence, kind) = line.trim_end().split_at(ticks);
        let body: String = lines.by_ref().take_while(|line| line.trim_end() != fence).collect();
        let commands = commands(&body);
        blocks.push(Block { kind: kind.to_owned(), body, commands });
    }
    blocks
}

fn commands(body: &str) -> Vec<Command> {
    let mut commands: Vec<Command> = Vec::new();
    for line in body.split_inclusive('\n') {
        if let Some(typed) = line.strip_prefix("$ ") {
            let line_typed = typed.to_owned();
            commands.push(Command {
                line: line_typed,
                shown: line.to_owned(),
                output: String::new(),
            });
            continue;
        }
        let Some(command) = commands.last_mut() else { continue };
        if let Some(typed) = line.strip_prefix("> ").filter(|_| command.output.is_empty()) {
            command.line.push_str(typed);
            command.shown.push_str(line);
        } else {
            command.output.push_str(line);
        }
    }
    commands
}

/// The commands of a shell script as lists of words: split at line ends and at `|`, `&&`, `;` and
/// `>`, without comments. It handles quotes, and only the syntax that the book uses.
pub(crate) fn words(text: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word = String::new();
    let mut quote = None;
    let mut is_quoted = false;
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match (c, quote) {
            (c, Some(end)) if c == end => quote = None,
            (c, Some(_)) => word.push(c),
            ('\'' | '"', None) => (quote, is_quoted) = (Some(c), true),
            ('#', None) if word.is_empty() => while characters.next_if(|c| *c != '\n').is_some() {},
            (c, None) if c.is_whitespace() || "|&;>".contains(c) => {
                if !word.is_empty() || is_quoted {
                    commands.last_mut().unwrap().push(std::mem::take(&mut word));
                    is_quoted = false;
                }
                if c == '\n' || "|&;>".contains(c) {
                    commands.push(Vec::new());
                }
            }
            (c, None) => word.push(c),
        }
    }
    if !word.is_empty() {
        commands.last_mut().unwrap().push(word);
    }
    commands
}

/// Whether the output matches the book, where `…` in a line matches anything, and a line with only
/// `…` any lines.
pub(crate) fn matches(expected: &str, output: &str) -> bool {
    let expected: Vec<&str> = expected.lines().collect();
    let output: Vec<&str> = output.lines().collect();
    lines_match(&expected, &output)
}

fn lines_match(expected: &[&str], output: &[&str]) -> bool {
    match expected.split_first() {
        None => output.is_empty(),
        Some((&"…", rest)) => (0..=output.len()).any(|at| lines_match(rest, &output[at..])),
        Some((line, rest)) => output
            .split_first()
            .is_some_and(|(first, others)| line_matches(line, first) && lines_match(rest, others)),
    }
}

fn line_matches(expected: &str, line: &str) -> bool {
    let mut parts = expected.trim_end().split('…');
    let line = line.trim_end();
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut has_gap = false;
    let mut last = "";
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        (has_gap, last) = (true, part);
    }
    rest.is_empty() || has_gap && line.ends_with(last)
}

/// A shell in its own directory, with the program in its path. A server listens at a free port, in
/// place of the book's.
pub(crate) struct Session {
    shell: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    directory: tempfile::TempDir,
    /// The book's ports and their replacements.
    ports: [(&'static str, String); 2],
    jobs: usize,
}

impl Session {
    pub(crate) fn new(program: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", program.parent().unwrap().display());
        let mut shell = Process::new("bash")
            .args(["--norc", "--noprofile"])
            .current_dir(&directory)
            .env("PATH", path)
            .env("LC_ALL", "C.UTF-8")
            .env_remove("SILTSTONE_PASSWORD")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = shell.stdin.take().unwrap();
        // Background jobs end with the shell.
        writeln!(input, "exec 2>&1; trap 'kill $(jobs -p)' EXIT").unwrap();
        let output = BufReader::new(shell.stdout.take().unwrap());
        let ports = [(":6379", free_port()), (":9379", free_port())];
        Session { shell, input, output, directory, ports, jobs: 0 }
    }

    /// The output of the command; `None` if it needs a program that is not installed.
    pub(crate) fn run(&mut self, command: &Command) -> Option<String> {
        const OPTIONAL_PROGRAMS: [&str; 3] = ["redis-cli", "curl", "mdbook"];
        let is_missing = |name: &str| command.line.contains(name) && !is_installed(name);
        if OPTIONAL_PROGRAMS.into_iter().any(is_missing) {
            return None;
        }
        let [(_, port), (metrics_shown, metrics)] = &self.ports;
        let serve = format!("siltstone serve --listen 127.0.0.1{port} ");
        let mut line = command.line.trim_end().replace(metrics_shown, metrics);
        if !line.contains("--listen") {
            line = line.replace("siltstone serve ", &serve);
        }
        line = line.replace("redis-cli ", &format!("redis-cli -p {} ", &port[1..]));
        if let Some(server) = line.strip_suffix(" &") {
            // Its output comes once it listens, which is waited for.
            self.jobs += 1;
            let (file, count) = (format!(".job{}", self.jobs), command.output.lines().count());
            line = format!(
                ": > {file}; {server} > {file} 2>&1 &\nfor _ in $(seq 200); do [ $(wc -l < {file}) -ge {count} ] \
                 && break; sleep 0.05; done; cat {file}"
            );
        }
        writeln!(self.input, "{line}\necho; echo '-- done --'").unwrap();
        let mut printed = String::new();
        while !printed.ends_with("-- done --\n") {
            let read = self.output.read_line(&mut printed).unwrap();
            assert!(read > 0, "the shell ended: {line}\n{printed}");
        }
        // The empty line before the mark ends an incomplete last line of output.
        let printed = printed.trim_end_matches("-- done --\n");
        let mut printed = printed.strip_suffix('\n').unwrap_or(printed).to_owned();
        for (shown, port) in &self.ports {
            printed = printed.replace(port, shown);
        }
        Some(printed)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = writeln!(self.input, "exit");
        let _ = self.shell.wait();
        let _ = fs::remove_dir_all(self.directory.path());
    }
}

/// With the colon before it, so that no other number matches.
fn free_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!(":{}", listener.local_addr().unwrap().port())
}

fn is_installed(program: &str) -> bool {
    Process::new("bash")
        .args(["-c", &format!("command -v {program}")])
        .output()
        .is_ok_and(|o| o.status.success())
}
