//! A server drawn: a head, a tab a table, and one table's levels, rates, memory, stalls and hits.
//!
//! ```text
//! levels as bars (full: at their aim, or the largest level)
//! memory by structure │ throughput, amplification, stalls by cause, hits
//! ```
//!
//! The live view and `--once` draw the same widgets; the latter as plain text, every table below
//! the other.

use indicatif::HumanBytes;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Paragraph, Tabs, Widget};

use super::model::{Level, Ratio, Server, Table};

/// Columns of a bar.
const BAR: usize = 16;
/// Columns and lines of a plain frame.
const PLAIN_WIDTH: u16 = 100;

/// One frame of the live view.
pub(super) struct Frame<'a> {
    pub(super) address: &'a str,
    pub(super) server: &'a Server,
    /// The table shown.
    pub(super) selected: usize,
    /// Why the numbers are old, if they are.
    pub(super) trouble: Option<&'a str>,
}

impl Widget for Frame<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let rows = [Constraint::Length(1), Constraint::Length(1), Constraint::Fill(1)];
        let [top, tabs, body] = Layout::vertical(rows).areas(area);
        head(self.address, self.server).render(top, buffer);
        match self.trouble {
            Some(text) => Line::from(format!(" {text}")).black().on_yellow().render(tabs, buffer),
            None => {
                let names = self.server.tables.iter().map(|table| table.name.clone());
                let chosen = Style::new().bold().reversed();
                Tabs::new(names).select(self.selected).highlight_style(chosen).render(tabs, buffer);
                Line::from("tab ← → tables  q quit ").dim().right_aligned().render(tabs, buffer);
            }
        }
        match self.server.tables.get(self.selected) {
            Some(shown) => table(shown, body, buffer),
            None => Line::from(" The server has no tables.").render(body, buffer),
        }
    }
}

/// All tables as plain text.
pub(super) fn plain(address: &str, server: &Server) -> String {
    let mut text = head(address, server).to_string();
    for shown in &server.tables {
        let above = levels(shown).len();
        let right = 7 + shown.stalls.len() + shown.hits.len();
        let lines =
            u16::try_from(3 + above + right.max(shown.memory.len())).unwrap_or(u16::MAX / 2);
        let mut buffer = Buffer::empty(Rect::new(0, 0, PLAIN_WIDTH, lines));
        table(shown, buffer.area, &mut buffer);
        for y in 0..lines {
            let line: String = (0..PLAIN_WIDTH).map(|x| buffer[(x, y)].symbol()).collect();
            text += "\n";
            text += line.trim_end();
        }
    }
    text
}

fn head(address: &str, server: &Server) -> Line<'static> {
    Line::from(vec![
        Span::from(" siltstone ").bold().cyan(),
        Span::from(format!(
            "{address}  up {}  {} clients  {} commands  in {}  out {}",
            uptime(server.uptime),
            server.clients,
            rate(server.commands),
            byte_rate(server.bytes_in),
            byte_rate(server.bytes_out),
        )),
    ])
}

fn table(table: &Table, area: Rect, buffer: &mut Buffer) {
    let title = format!(
        " {} · {} · about {} keys · {} ",
        table.name,
        table.engine,
        short(table.keys),
        bytes(table.space)
    );
    let frame = Block::bordered().border_type(BorderType::Rounded).title(title.bold());
    let inner = frame.inner(area);
    frame.render(area, buffer);

    let lines = levels(table);
    let rows = [Constraint::Length(lines.len() as u16), Constraint::Fill(1)];
    let [above, below] = Layout::vertical(rows).areas(inner);
    let columns = [Constraint::Fill(5), Constraint::Length(1), Constraint::Fill(4)];
    let [left, _, right] = Layout::horizontal(columns).areas(below);
    Paragraph::new(lines).render(above, buffer);

    let total: f64 = table.memory.iter().map(|(_, bytes)| bytes).sum();
    let mut lines = vec![heading(&format!("memory {}", bytes(total)))];
    lines.extend(table.memory.iter().map(|(name, held)| {
        let pieces =
            [Span::from(label(&name.replace('_', " "))), bar(held / total, Color::Magenta)];
        Line::from_iter(pieces.into_iter().chain([Span::from(format!(" {}", bytes(*held)))]))
    }));
    Paragraph::new(lines).render(left, buffer);

    let mut lines = vec![
        heading("throughput"),
        row("writes", format!("{}  {}", rate(table.writes), byte_rate(table.written_bytes))),
        row("lookups", format!("{}  seeks {}", rate(table.gets), rate(table.seeks))),
        heading("amplification, now (since the start)"),
        row("write", ratio(table.write_amplification, |value| format!("{value:.2}"))),
        row("reads a lookup", ratio(table.read_amplification, |value| format!("{value:.2}"))),
        heading(&format!("stalls, longest {}", seconds(table.longest_stall))),
    ];
    lines.extend(table.stalls.iter().map(|stall| {
        let now = stall.now.map_or("–".to_owned(), |now| format!("{}/s", seconds(now)));
        let line = row(&stall.cause, format!("{now}  ({})", seconds(stall.total)));
        if stall.now > Some(0.0) { line.yellow() } else { line }
    }));
    lines.push(heading("hits, now (since the start)"));
    let percent = |value: f64| format!("{:.1} %", 100.0 * value);
    lines.extend(table.hits.iter().map(|(name, hits)| row(name, ratio(*hits, percent))));
    Paragraph::new(lines).render(right, buffer);
}

/// The levels, the triangle among them. Those below the last that has anything share a line.
fn levels(table: &Table) -> Vec<Line<'static>> {
    let mut lines = vec![heading("levels")];
    let largest = table.levels.iter().map(|level| level.bytes).fold(0.0, f64::max);
    let held = table.levels.iter().rposition(|level| level.files > 0.0).map_or(0, |last| last + 1);
    let (held, empty) = table.levels.split_at(held);
    lines.extend(held.iter().map(|level| level_line(level, largest)));
    match empty {
        [] => {}
        [one] => lines.push(level_line(one, largest)),
        [first, .., last] => {
            let text = format!(" {} to {}: empty", first.name, last.name);
            lines.push(Line::from(text).dim());
        }
    }
    if let Some(container) = &table.container {
        let text = format!(" {:.0} %, {} rows", 100.0 * container.fill, container.rows);
        let pieces = [Span::from(label("container")), bar(container.fill, Color::Cyan)];
        lines.push(Line::from_iter(pieces.into_iter().chain([Span::from(text)])));
    }
    if let Some(cursor) = table.cursor {
        // The triangle: what the cursor has passed is compacted, and newer rows fill it again.
        let at = ((BAR - 1) as f64 * cursor).round() as usize;
        let marked = format!("{}▲{}", "─".repeat(at), "─".repeat(BAR - 1 - at));
        let text = format!(" {:.0} % of level 1", 100.0 * cursor);
        let pieces = [Span::from(label("cursor")), Span::from(marked).cyan(), Span::from(text)];
        lines.push(Line::from_iter(pieces));
    }
    if table.levels.is_empty() {
        lines.push(Line::from(" none: all in memory").dim());
    }
    lines
}

/// A bar is full when the level is at its aim; without aims, the largest level's is.
fn level_line(level: &Level, largest: f64) -> Line<'static> {
    let full = if level.target > 0.0 { level.target } else { largest };
    let color = if level.bytes > 1.1 * full { Color::Yellow } else { Color::Green };
    let aim = match level.target {
        0.0 => String::new(),
        target => format!(" of {}", bytes(target)),
    };
    let written = match level.written {
        Some(more) if more > 0.0 => format!(" +{}", byte_rate(level.written)),
        _ => String::new(),
    };
    let text = format!(" {}{aim}, {} files{written}", bytes(level.bytes), level.files);
    Line::from(vec![Span::from(label(&level.name)), bar(level.bytes / full, color), text.into()])
}

fn heading(text: &str) -> Line<'static> {
    Line::from(text.to_owned()).bold().cyan()
}

fn label(text: &str) -> String {
    format!(" {text:<13.13} ")
}

fn row(name: &str, text: String) -> Line<'static> {
    Line::from(format!(" {name:<19}{text}"))
}

fn bar(share: f64, color: Color) -> Span<'static> {
    // Nothing divided by nothing fills nothing.
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let filled = (share * BAR as f64).round() as usize;
    Span::from("█".repeat(filled) + &"░".repeat(BAR - filled)).fg(color)
}

/// A number at three digits: `488 k`.
fn short(value: f64) -> String {
    match value {
        v if v < 1e3 => format!("{v:.0}"),
        v if v < 1e6 => format!("{:.1} k", v / 1e3),
        v if v < 1e9 => format!("{:.1} M", v / 1e6),
        v => format!("{:.1} G", v / 1e9),
    }
}

fn rate(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |value| format!("{}/s", short(value)))
}

fn bytes(value: f64) -> String {
    HumanBytes(value as u64).to_string()
}

fn byte_rate(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |value| format!("{}/s", bytes(value)))
}

fn ratio(ratio: Ratio, show: impl Fn(f64) -> String) -> String {
    let show = |value: Option<f64>| value.map_or("–".to_owned(), &show);
    format!("{}  ({})", show(ratio.now), show(ratio.total))
}

fn seconds(value: f64) -> String {
    if value >= 1.0 { format!("{value:.1} s") } else { format!("{:.1} ms", 1e3 * value) }
}

fn uptime(seconds: f64) -> String {
    let s = seconds as u64;
    match (s / 86_400, s / 3600 % 24, s / 60 % 60, s % 60) {
        (0, 0, minutes, s) => format!("{minutes}m {s}s"),
        (0, hours, minutes, _) => format!("{hours}h {minutes}m"),
        (days, hours, _, _) => format!("{days}d {hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::model::{server, tests::page};
    use super::*;

    fn drawn(width: u16, height: u16, selected: usize, trouble: Option<&str>) -> String {
        let server = server(Some(&page(1)), &page(2));
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let frame = Frame { address: "host:1", server: &server, selected, trouble };
        terminal.draw(|f| f.render_widget(frame, f.area())).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_frame_shows_levels_rates_memory_stalls_and_hits() {
        let text = drawn(100, 22, 0, None);
        for part in [
            "siltstone host:1  up 1m 44s  3 clients  750/s commands  in 2.00 KiB/s  out 1.00 KiB/s",
            "fruit · lsm · about 20.0 M keys · 2.79 GiB",
            " L0            ████████░░░░░░░░ 512.00 MiB, 14 files",
            " L1            ████████████████ 1.00 GiB of 1.00 GiB, 64 files",
            " L2 to L3: empty",
            " container     ████████████░░░░ 75 %, 11 rows",
            " cursor        ────▲─────────── 25 % of level 1",
            " memtable      ███████████░░░░░ 57.22 MiB",
            " writes             250/s  488.28 KiB/s",
            " lookups            500/s  seeks 4/s",
            " write              3.00  (2.67)",
            " reads a lookup     1.50  (1.17)",
            "stalls, longest 9.0 ms",
            " flush              250.0 ms/s  (1.0 s)",
            " lookups that found 90.0 %  (76.7 %)",
            " block cache        90.0 %  (90.0 %)",
        ] {
            assert!(text.contains(part), "'{part}' is not in:\n{text}");
        }
        assert!(!text.contains("about 7 keys"), "{text}");
    }

    #[test]
    fn tabs_choose_the_table_and_trouble_is_said() {
        let text = drawn(100, 20, 1, Some("gone away"));
        assert!(text.contains("cache ·") && text.contains("about 7 keys"), "{text}");
        assert!(text.contains("none: all in memory") && text.contains("gone away"), "{text}");
        // A tiny terminal cuts off, and no more.
        for (width, height) in [(1, 1), (10, 3), (30, 8)] {
            drawn(width, height, 0, None);
        }
    }

    #[test]
    fn a_plain_frame_has_every_table_whole() {
        let text = plain("host:1", &server(Some(&page(1)), &page(2)));
        for part in ["fruit · lsm", "cache ·", " filter ", " block cache "] {
            assert!(text.contains(part), "'{part}' is not in:\n{text}");
        }
        assert_eq!(text.matches('╯').count(), 2, "{text}");
    }
}
