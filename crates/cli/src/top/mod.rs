//! `top`: a live view of a running server, by its metrics.
//!
//! ```text
//! fetch: HTTP → parse: text → rows → model: two pages → rates → view: drawing
//! ```
//!
//! A thread asks the server once an interval, so keys are answered while it waits. A server that
//! goes away is said above its last numbers, and asked again until it is back.

mod fetch;
mod model;
mod parse;
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

use crate::outcome::Failure;
use crate::{CommandResult, Outcome};
use fetch::fetch;
use model::{Page, Server, server};

/// How long a key or a page may wait for the other.
const TICK: Duration = Duration::from_millis(50);

/// Watch a running server: levels, throughput, amplification, memory, stalls, cache hits
///
/// The server must have been started with `siltstone serve --metrics ADDR`. Keys: tab, ← and → for
/// tables, ↑ and ↓ for lines that have no room, q to quit.
#[derive(Args)]
pub(crate) struct Top {
    /// Where the server has its metrics
    #[arg(default_value = "127.0.0.1:9100")]
    address: SocketAddr,
    /// How often to ask; rates are those of one interval
    #[arg(long, value_parser = interval, default_value = "1s")]
    interval: Duration,
    /// Print all tables once, as plain text, after one interval
    #[arg(long)]
    once: bool,
    /// The server's password, from another machine (or set SILTSTONE_PASSWORD)
    #[arg(long)]
    password: Option<String>,
}

fn interval(text: &str) -> Result<Duration, String> {
    parse_duration(text).and_then(|interval| match interval {
        short if short < Duration::from_millis(100) => Err("take 100ms or more".to_owned()),
        interval => Ok(interval),
    })
}

impl Top {
    pub(crate) fn run(mut self) -> CommandResult {
        self.password = self.password.or_else(|| std::env::var("SILTSTONE_PASSWORD").ok());
        let first = self.page()?;
        if self.once {
            thread::sleep(self.interval);
            let now = server(Some(&first), &self.page()?);
            let columns = stdout().is_terminal().then(|| terminal::size().ok()).flatten();
            let columns = columns.map(|(columns, _)| columns);
            println!("{}", view::plain(&self.address.to_string(), &now, columns));
            return Ok(Outcome::Done);
        }
        if !stdout().is_terminal() {
            return Err(Failure::Usage("the output is no terminal: add --once".to_owned()));
        }
        // Its panic hook, too, gives the terminal back.
        let mut screen = ratatui::try_init().map_err(Failure::output)?;
        let watched = self.watch(first, &mut screen);
        ratatui::restore();
        watched.map_err(Failure::output)?;
        Ok(Outcome::Done)
    }

    fn page(&self) -> Result<Page, Failure> {
        fetch(self.address, self.password.as_deref()).map_err(|error| {
            Failure::Store(format!(
                "cannot read http://{0}/metrics: {error}; is a server running with `siltstone serve \
                 --metrics {0}`?",
                self.address
            ))
        })
    }

    fn watch(self, first: Page, screen: &mut DefaultTerminal) -> std::io::Result<()> {
        let address = self.address.to_string();
        let (sender, pages) = sync_channel(1);
        thread::spawn(move || self.ask(&sender));
        let shown = server(None, &first);
        let mut watch = Watch { shown, last: first, trouble: None, at: 0, skipped: 0 };
        loop {
            watch.take(&pages, &address);
            screen.draw(|frame| {
                watch.stay_within(frame.area().as_size());
                let drawn = view::Frame {
                    address: &address,
                    server: &watch.shown,
                    selected: watch.at,
                    skipped: watch.skipped,
                    trouble: watch.trouble.as_deref(),
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

    /// Asks once an interval, until no one listens.
    fn ask(&self, sender: &SyncSender<std::io::Result<Page>>) {
        loop {
            thread::sleep(self.interval);
            if sender.send(fetch(self.address, self.password.as_deref())).is_err() {
                return;
            }
        }
    }
}

/// What the live view shows.
struct Watch {
    shown: Server,
    last: Page,
    trouble: Option<String>,
    /// The table selected.
    at: usize,
    /// Its lines that are passed over.
    skipped: u16,
}

impl Watch {
    /// Takes over the page that has come, if one has.
    fn take(&mut self, pages: &Receiver<std::io::Result<Page>>, address: &str) {
        match pages.try_recv() {
            Ok(Ok(page)) => {
                self.shown = server(Some(&self.last), &page);
                self.last = page;
                self.trouble = None;
                self.at = self.at.min(self.shown.tables.len().saturating_sub(1));
            }
            Ok(Err(error)) => {
                self.trouble = Some(format!("{address} has gone away: {error}; trying again"));
            }
            Err(_) => {}
        }
    }

    /// Passes over no more lines than have no room.
    fn stay_within(&mut self, terminal: Size) {
        let shown = self.shown.tables.get(self.at);
        let most = shown.map_or(0, |table| view::overflow(table, terminal));
        self.skipped = self.skipped.min(most);
    }

    /// Whether the key ends the view.
    fn press(&mut self, key: KeyEvent) -> bool {
        let tables = self.shown.tables.len().max(1);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Tab | KeyCode::Right => self.at = (self.at + 1) % tables,
            KeyCode::BackTab | KeyCode::Left => self.at = (self.at + tables - 1) % tables,
            KeyCode::Down => self.skipped = self.skipped.saturating_add(1),
            KeyCode::Up => self.skipped = self.skipped.saturating_sub(1),
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
    fn keys_go_round_the_tables_and_trouble_passes() {
        let last = page(1);
        let shown = server(None, &last);
        let mut watch = Watch { shown, last, trouble: None, at: 0, skipped: 0 };
        for (code, at) in [(KeyCode::Tab, 1), (KeyCode::Right, 0), (KeyCode::Left, 1)] {
            assert!(!watch.press(code.into()));
            assert_eq!(watch.at, at);
        }
        for code in [KeyCode::Up, KeyCode::Down, KeyCode::Down, KeyCode::Up] {
            assert!(!watch.press(code.into()));
        }
        assert_eq!((watch.at, watch.skipped), (1, 1));
        watch.stay_within(Size { width: 100, height: 100 });
        assert_eq!(watch.skipped, 0);
        assert!(watch.press(KeyCode::Char('q').into()));
        let (sender, pages) = sync_channel(2);
        sender.send(Err(std::io::ErrorKind::ConnectionRefused.into())).unwrap();
        watch.take(&pages, "host:1");
        assert!(watch.trouble.as_ref().unwrap().contains("host:1 has gone away"));
        sender.send(Ok(page(2))).unwrap();
        watch.take(&pages, "host:1");
        assert_eq!((watch.trouble, watch.shown.tables[0].writes), (None, Some(250.0)));
    }
}
