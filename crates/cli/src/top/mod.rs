//! `top`: a live view of a running server, from its metrics.
//!
//! ```text
//! metrics_page: HTTP → text → rows   model: two pages → rates   view: drawing
//! ```
//!
//! A thread polls the server once per interval, so keys are handled meanwhile. A lost connection
//! is shown above the last numbers, and retried.

mod model;
mod view;

use std::io::{IsTerminal, stdout};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::crossterm::terminal;
use ratatui::layout::Size;
use siltstone::options::parse_duration;

use crate::access::{PASSWORD_VARIABLE, password_or_variable};
use crate::metrics_page::{self, Page};
use crate::outcome::{CommandResult, Failure, Outcome};
use model::{Server, server};

/// The maximum delay in handling a key or a page.
const TICK: Duration = Duration::from_millis(50);

/// Watch a running server: levels, throughput, amplification, memory, stalls, cache hits
///
/// The server must have been started with `siltstone serve --metrics ADDR`. Keys: tab, ← and → for
/// tables, ↑ and ↓ to scroll, q to quit.
#[derive(Args)]
pub(crate) struct Top {
    /// The server's metrics address
    #[arg(default_value = "127.0.0.1:9379")]
    address: SocketAddr,
    /// The polling interval; rates are those of one interval
    #[arg(long, value_parser = interval, default_value = "1s")]
    interval: Duration,
    /// Print all tables once, as plain text, after one interval
    #[arg(long)]
    once: bool,
    /// The server's password, needed from another machine (or set SILTSTONE_PASSWORD)
    #[arg(long)]
    password: Option<String>,
}

fn interval(text: &str) -> Result<Duration, String> {
    parse_duration(text).and_then(|interval| match interval {
        short if short < Duration::from_millis(100) => Err("use 100ms or more".to_owned()),
        interval => Ok(interval),
    })
}

impl Top {
    pub(crate) fn run(mut self) -> CommandResult {
        self.password = password_or_variable(self.password, PASSWORD_VARIABLE);
        let first = metrics_page::read(self.address, self.password.as_deref())?;
        if self.once {
            thread::sleep(self.interval);
            let second = metrics_page::read(self.address, self.password.as_deref())?;
            let now = server(Some(&first), &second);
            let columns = stdout().is_terminal().then(|| terminal::size().ok()).flatten();
            let columns = columns.map(|(columns, _)| columns);
            println!("{}", view::plain(&self.address.to_string(), &now, columns));
            return Ok(Outcome::Done);
        }
        if !stdout().is_terminal() {
            return Err(Failure::Usage("the output is not a terminal: add --once".to_owned()));
        }
        // `try_init` installs a panic hook that restores the terminal.
        let mut screen = ratatui::try_init().map_err(Failure::output)?;
        let watched = self.watch(first, &mut screen);
        ratatui::restore();
        watched.map_err(Failure::output)?;
        Ok(Outcome::Done)
    }

    fn watch(self, first: Page, screen: &mut DefaultTerminal) -> std::io::Result<()> {
        let address = self.address.to_string();
        let (sender, pages) = sync_channel(1);
        thread::spawn(move || self.poll(&sender));
        let shown = server(None, &first);
        let mut watch =
            Watch { shown, last: first, problem: None, table_index: 0, skipped_lines: 0 };
        loop {
            watch.receive(&pages, &address);
            screen.draw(|frame| {
                watch.limit_scroll(frame.area().as_size());
                let drawn = view::Frame {
                    address: &address,
                    server: &watch.shown,
                    selected: watch.table_index,
                    skipped: watch.skipped_lines,
                    problem: watch.problem.as_deref(),
                };
                frame.render_widget(drawn, frame.area());
            })?;
            if event::poll(TICK)?
                && let Event::Key(key) = event::read()?
                && watch.press(key)
            {
                return Ok(());
            }
        }
    }

    /// Polls the server once per interval, until the receiver is gone.
    fn poll(&self, sender: &SyncSender<std::io::Result<Page>>) {
        loop {
            thread::sleep(self.interval);
            if sender.send(metrics_page::fetch(self.address, self.password.as_deref())).is_err() {
                return;
            }
        }
    }
}

/// The state of the live view.
struct Watch {
    shown: Server,
    last: Page,
    problem: Option<String>,
    /// Index of the table shown.
    table_index: usize,
    /// Lines of it above the screen.
    skipped_lines: u16,
}

impl Watch {
    /// Shows the next page, if one has arrived.
    fn receive(&mut self, pages: &Receiver<std::io::Result<Page>>, address: &str) {
        match pages.try_recv() {
            Ok(Ok(page)) => {
                self.shown = server(Some(&self.last), &page);
                self.last = page;
                self.problem = None;
                self.table_index = self.table_index.min(self.shown.tables.len().saturating_sub(1));
            }
            Ok(Err(error)) => {
                self.problem = Some(format!("{address} is not reachable: {error}; retrying"));
            }
            Err(_) => {}
        }
    }

    /// Limits scrolling to the lines that do not fit.
    fn limit_scroll(&mut self, terminal: Size) {
        let shown = self.shown.tables.get(self.table_index);
        let max = shown.map_or(0, |table| view::overflow(table, terminal));
        self.skipped_lines = self.skipped_lines.min(max);
    }

    /// Whether the key ends the view.
    fn press(&mut self, key: KeyEvent) -> bool {
        let tables = self.shown.tables.len().max(1);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Tab | KeyCode::Right => self.table_index = (self.table_index + 1) % tables,
            KeyCode::BackTab | KeyCode::Left => {
                self.table_index = (self.table_index + tables - 1) % tables
            }
            KeyCode::Down => self.skipped_lines = self.skipped_lines.saturating_add(1),
            KeyCode::Up => self.skipped_lines = self.skipped_lines.saturating_sub(1),
            _ => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::model::tests::page;
    use super::*;

    #[test]
    fn keys_cycle_through_tables_and_a_problem_ends() {
        let last = page(1);
        let shown = server(None, &last);
        let mut watch = Watch { shown, last, problem: None, table_index: 0, skipped_lines: 0 };
        for (code, at) in [(KeyCode::Tab, 1), (KeyCode::Right, 0), (KeyCode::Left, 1)] {
            assert!(!watch.press(code.into()));
            assert_eq!(watch.table_index, at);
        }
        for code in [KeyCode::Up, KeyCode::Down, KeyCode::Down, KeyCode::Up] {
            assert!(!watch.press(code.into()));
        }
        assert_eq!((watch.table_index, watch.skipped_lines), (1, 1));
        watch.limit_scroll(Size { width: 100, height: 100 });
        assert_eq!(watch.skipped_lines, 0);
        assert!(watch.press(KeyCode::Char('q').into()));
        let (sender, pages) = sync_channel(2);
        sender.send(Err(std::io::ErrorKind::ConnectionRefused.into())).unwrap();
        watch.receive(&pages, "host:1");
        assert!(watch.problem.as_ref().unwrap().contains("host:1 is not reachable"));
        sender.send(Ok(page(2))).unwrap();
        watch.receive(&pages, "host:1");
        assert_eq!((watch.problem, watch.shown.tables[0].writes), (None, Some(250.0)));
    }
}
