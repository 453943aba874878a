//! Draws a server: a header, a tab per table, and one table's levels, rates, memory, stalls and
//! hits.
//!
//! ```text
//! levels as bars (full: at their target, or the largest level)
//! memory by structure │ throughput, amplification, stalls by cause, hits
//! ```
//!
//! In a narrow terminal memory is below the rates; in a narrower one bars and names are shorter and
//! levels have fewer columns; in a short one ↑ and ↓ scroll. The live view and `--once` draw the
//! same widgets; the latter as plain text, with all tables below one another.

use indicatif::HumanBytes;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect, Size};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Paragraph, Tabs, Widget};

use super::model::{Level, Ratio, Server, Table};

/// The width of a plain frame that goes to no terminal.
const PLAIN_WIDTH: u16 = 100;

/// The layout for a width.
#[derive(Clone, Copy)]
struct TableLayout {
    /// Memory is beside the rates, not below them.
    is_beside: bool,
    /// Levels have their target and their write rate.
    has_targets: bool,
    /// The widths of a bar, of the name before it, and of the name before a rate.
    bar: usize,
    label: usize,
    row: usize,
}

impl TableLayout {
    fn of(width: u16) -> Self {
        let is_beside = width >= 80;
        let has_targets = width >= 68;
        let (bar, label) =
            if width >= 96 || (52..80).contains(&width) { (16, 13) } else { (8, 13) };
        let label = if width < 52 { 9 } else { label };
        TableLayout { is_beside, has_targets, bar, label, row: if width >= 96 { 18 } else { 14 } }
    }
}

/// One frame of the live view.
pub(super) struct Frame<'a> {
    pub(super) address: &'a str,
    pub(super) server: &'a Server,
    /// The table shown.
    pub(super) selected: usize,
    /// The number of its lines scrolled out.
    pub(super) skipped: u16,
    /// Why the numbers are stale, if they are.
    pub(super) problem: Option<&'a str>,
}

impl Widget for Frame<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let rows = [Constraint::Length(1), Constraint::Length(1), Constraint::Fill(1)];
        let [top, tabs, body] = Layout::vertical(rows).areas(area);
        head(self.address, self.server, area.width).render(top, buffer);
        match self.problem {
            Some(text) => Line::from(format!(" {text}")).black().on_yellow().render(tabs, buffer),
            None => {
                let names: Vec<_> = self.server.tables.iter().map(|table| &*table.name).collect();
                // Each has a column on both sides and a line before the next.
                let taken: usize = names.iter().map(|name| name.chars().count() + 3).sum();
                let chosen = Style::new().bold().reversed();
                Tabs::new(names).select(self.selected).highlight_style(chosen).render(tabs, buffer);
                if taken + KEYS.chars().count() <= usize::from(area.width) {
                    Line::from(KEYS).dim().right_aligned().render(tabs, buffer);
                }
            }
        }
        match self.server.tables.get(self.selected) {
            Some(shown) => scrolled(shown, self.skipped, body, buffer),
            None => Line::from(" The server has no tables.").render(body, buffer),
        }
    }
}

const KEYS: &str = "tab ← → tables  ↑ ↓ lines  q quit ";

/// The number of lines of the table that do not fit in a terminal of this size.
pub(super) fn overflow(shown: &Table, terminal: Size) -> u16 {
    table(shown, terminal.width).area.height.saturating_sub(terminal.height.saturating_sub(2))
}

/// Draws the lines of a table after the skipped ones, as far as they fit.
fn scrolled(shown: &Table, skipped: u16, area: Rect, buffer: &mut Buffer) {
    let whole = table(shown, area.width);
    let height = whole.area.height.saturating_sub(skipped).min(area.height);
    for (y, x) in (0..height).flat_map(|y| (0..area.width).map(move |x| (y, x))) {
        buffer[(area.x + x, area.y + y)] = whole[(x, skipped + y)].clone();
    }
    if whole.area.height > skipped + height && height > 0 {
        let last = Rect { y: area.y + height - 1, height: 1, ..area };
        Line::from(" ↓ more ").dim().right_aligned().render(last, buffer);
    }
}

/// All tables as plain text, for a terminal of this width or for none.
pub(super) fn plain(address: &str, server: &Server, columns: Option<u16>) -> String {
    let width = columns.unwrap_or(PLAIN_WIDTH).min(PLAIN_WIDTH);
    let mut text = head(address, server, columns.unwrap_or(u16::MAX)).to_string();
    for shown in &server.tables {
        let whole = table(shown, width);
        for y in 0..whole.area.height {
            let line: String = (0..width).map(|x| whole[(x, y)].symbol()).collect();
            text += "\n";
            text += line.trim_end();
        }
    }
    text
}

/// The header, as far as it fits.
fn head(address: &str, server: &Server, width: u16) -> Line<'static> {
    let parts = [
        address.to_owned(),
        format!("  up {}", uptime(server.uptime)),
        format!("  {} clients", server.clients),
        format!("  {} commands", rate(server.commands)),
        format!("  in {}", byte_rate(server.bytes_in)),
        format!("  out {}", byte_rate(server.bytes_out)),
    ];
    let mut line = Line::from(vec![Span::from(" siltstone ").bold().cyan()]);
    for part in parts {
        if line.width() + part.chars().count() > usize::from(width) {
            break;
        }
        line.push_span(part);
    }
    line
}

/// A table, as high as it is at this width.
fn table(table: &Table, width: u16) -> Buffer {
    let shape = TableLayout::of(width);
    let (levels, rates, memory) = (levels(table, shape), rates(table, shape), memory(table, shape));
    let below = match shape.is_beside {
        true => rates.len().max(memory.len()),
        false => rates.len() + memory.len(),
    };
    let height = u16::try_from(2 + levels.len() + below).unwrap_or(u16::MAX);
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));

    let keys = table.keys.map_or(String::new(), |keys| format!("about {} keys · ", short(keys)));
    let title = format!(" {} · {} · {keys}{} ", table.name, table.engine, bytes(table.space));
    let frame = Block::bordered().border_type(BorderType::Rounded).title(title.bold());
    let inner = frame.inner(buffer.area);
    frame.render(buffer.area, &mut buffer);
    if shape.is_beside {
        let rows = [Constraint::Length(levels.len() as u16), Constraint::Fill(1)];
        let [above, below] = Layout::vertical(rows).areas(inner);
        // As wide as the widest of the rates.
        let columns = [Constraint::Fill(1), Constraint::Length(1), Constraint::Length(43)];
        let [left, _, right] = Layout::horizontal(columns).areas(below);
        Paragraph::new(levels).render(above, &mut buffer);
        Paragraph::new(memory).render(left, &mut buffer);
        Paragraph::new(rates).render(right, &mut buffer);
    } else {
        let lines: Vec<_> = levels.into_iter().chain(rates).chain(memory).collect();
        Paragraph::new(lines).render(inner, &mut buffer);
    }
    buffer
}

fn memory(table: &Table, shape: TableLayout) -> Vec<Line<'static>> {
    let total: f64 = table.memory.iter().map(|(_, bytes)| bytes).sum();
    let mut lines = vec![heading(&format!("memory {}", bytes(total)))];
    lines.extend(table.memory.iter().map(|(name, held)| {
        let bar = bar(held / total, Color::Magenta, shape);
        let held = format!(" {}", bytes(*held)).into();
        Line::from_iter([label(&name.replace('_', " "), shape), bar, held])
    }));
    lines
}

fn rates(table: &Table, shape: TableLayout) -> Vec<Line<'static>> {
    let row = |name: &str, text: String| row(name, text, shape);
    let mut lines = vec![
        heading("throughput"),
        row("writes", format!("{}  {}", rate(table.writes), byte_rate(table.written_bytes))),
        row("lookups", format!("{}  seeks {}", rate(table.gets), rate(table.seeks))),
        heading("amplification, now (since the start)"),
        row("write", ratio(table.write_amplification, |value| format!("{value:.2}"))),
        row("reads/lookup", ratio(table.read_amplification, |value| format!("{value:.2}"))),
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
    lines
}

/// The levels and the state of level 0. Empty levels at the end share a line.
fn levels(table: &Table, shape: TableLayout) -> Vec<Line<'static>> {
    let mut lines = vec![heading("levels")];
    let largest = table.levels.iter().map(|level| level.bytes).fold(0.0, f64::max);
    let held = table.levels.iter().rposition(|level| level.files > 0.0).map_or(0, |last| last + 1);
    let (held, empty) = table.levels.split_at(held);
    lines.extend(held.iter().map(|level| level_line(level, largest, shape)));
    match empty {
        [] => {}
        [one] => lines.push(level_line(one, largest, shape)),
        [first, .., last] => {
            let text = format!(" {} to {}: empty", first.name, last.name);
            lines.push(Line::from(text).dim());
        }
    }
    if let Some(level0) = &table.pmem_level0 {
        let text = format!(" {:.0} %, {} runs", 100.0 * level0.fill, level0.runs);
        let bar = bar(level0.fill, Color::Cyan, shape);
        lines.push(Line::from_iter([label("L0 in pmem", shape), bar, text.into()]));
    }
    if let Some(cursor) = table.cursor {
        // Slices that the cursor has passed are compacted, and filled again by newer runs.
        let last = shape.bar - 1;
        let at = ((last as f64 * cursor).round() as usize).min(last);
        let marked = format!("{}▲{}", "─".repeat(at), "─".repeat(last - at));
        let text = format!(" {:.0} % of level 1", 100.0 * cursor);
        let pieces = [label("cursor", shape), Span::from(marked).cyan(), text.into()];
        lines.push(Line::from_iter(pieces));
    }
    if table.levels.is_empty() {
        lines.push(Line::from(" none: all in memory").dim());
    }
    lines
}

/// A bar is full when the level is at its target; without targets, at the largest level.
fn level_line(level: &Level, largest: f64, shape: TableLayout) -> Line<'static> {
    let full = if level.target > 0.0 { level.target } else { largest };
    let color = if level.bytes > 1.1 * full { Color::Yellow } else { Color::Green };
    let target = match level.target {
        target if target == 0.0 || !shape.has_targets => String::new(),
        target => format!(" of {}", bytes(target)),
    };
    let written = match level.written {
        Some(more) if more > 0.0 && shape.has_targets => format!(" +{}", byte_rate(level.written)),
        _ => String::new(),
    };
    let text = format!(" {}{target}, {} files{written}", bytes(level.bytes), level.files);
    Line::from_iter([label(&level.name, shape), bar(level.bytes / full, color, shape), text.into()])
}

fn heading(text: &str) -> Line<'static> {
    Line::from(text.to_owned()).bold().cyan()
}

fn label(text: &str, shape: TableLayout) -> Span<'static> {
    let columns = shape.label;
    Span::from(format!(" {text:<columns$.columns$} "))
}

fn row(name: &str, text: String, shape: TableLayout) -> Line<'static> {
    let columns = shape.row;
    Line::from(format!(" {name:<columns$} {text}"))
}

fn bar(share: f64, color: Color, shape: TableLayout) -> Span<'static> {
    // An undefined share is drawn as zero.
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let filled = (share * shape.bar as f64).round() as usize;
    Span::from("█".repeat(filled) + &"░".repeat(shape.bar - filled)).fg(color)
}

/// A number with three digits: `488 k`.
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

    fn drawn(width: u16, height: u16, selected: usize, problem: Option<&str>) -> String {
        scrolled(width, height, selected, 0, problem)
    }

    fn scrolled(
        width: u16,
        height: u16,
        selected: usize,
        skipped: u16,
        problem: Option<&str>,
    ) -> String {
        let server = server(Some(&page(1)), &page(2));
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let frame = Frame { address: "host:1", server: &server, selected, skipped, problem };
        terminal.draw(|f| f.render_widget(frame, f.area())).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn frame_shows_levels_rates_memory_stalls_and_hits() {
        let text = drawn(100, 22, 0, None);
        for part in [
            "siltstone host:1  up 1m 44s  3 clients  750/s commands  in 2.00 KiB/s  out 1.00 KiB/s",
            "fruit · lsm · about 20.0 M keys · 2.79 GiB",
            " L0            ████████░░░░░░░░ 512.00 MiB, 14 files",
            " L1            ████████████████ 1.00 GiB of 1.00 GiB, 64 files",
            " L2 to L3: empty",
            " L0 in pmem    ████████████░░░░ 75 %, 11 runs",
            " cursor        ────▲─────────── 25 % of level 1",
            " memtable      ███████████░░░░░ 57.22 MiB",
            " writes             250/s  488.28 KiB/s",
            " lookups            500/s  seeks 4/s",
            " write              3.00  (2.67)",
            " reads/lookup       1.50  (1.17)",
            "stalls, longest 9.0 ms",
            " flush              250.0 ms/s  (1.0 s)",
            " lookup hits        90.0 %  (76.7 %)",
            " block cache        90.0 %  (90.0 %)",
        ] {
            assert!(text.contains(part), "'{part}' is not in:\n{text}");
        }
        assert!(!text.contains("about 7 keys"), "{text}");
    }

    #[test]
    fn tabs_select_the_table_and_a_problem_is_shown() {
        let text = drawn(100, 20, 1, Some("not reachable"));
        assert!(text.contains("cache ·") && text.contains("about 7 keys"), "{text}");
        assert!(text.contains("none: all in memory") && text.contains("not reachable"), "{text}");
        // A tiny terminal truncates the frame.
        for (width, height) in [(1, 1), (10, 3), (30, 8)] {
            drawn(width, height, 0, None);
        }
    }

    #[test]
    fn plain_frame_has_every_table_in_full() {
        let text = plain("host:1", &server(Some(&page(1)), &page(2)), None);
        for part in ["fruit · lsm", "cache ·", " filter ", " block cache "] {
            assert!(text.contains(part), "'{part}' is not in:\n{text}");
        }
        assert_eq!(text.matches('╯').count(), 2, "{text}");
    }
    #[test]
    fn narrow_terminal_shows_every_figure() {
        for (width, parts) in [
            (
                80,
                &[
                    " L1            ████████ 1.00 GiB of 1.00 GiB, 64 files",
                    " writes         250/s  488.28 KiB/s",
                ][..],
            ),
            (
                60,
                &[
                    " L1            ████████████████ 1.00 GiB, 64 files",
                    " memtable      ███████████░░░░░ 57.22 MiB",
                ],
            ),
            (
                40,
                &[" L1        ████████ 1.00 GiB, 64 files", " flush          250.0 ms/s  (1.0 s)"],
            ),
        ] {
            let text = drawn(width, 40, 0, None);
            let always = [
                "reads/lookup   1.50  (1.17)",
                "lookup hits    90.0 %  (76.7 %)",
                "block cache    90.0 %  (90.0 %)",
                "57.22 MiB",
                "amplification, now (since the start)",
            ];
            for part in parts.iter().chain(&always) {
                assert!(text.contains(part), "'{part}' is not in:\n{text}");
            }
            assert!(!text.contains("more"), "{text}");
        }
        // Parts of the header that do not fit are left out.
        assert!(
            drawn(40, 40, 0, None).contains("host:1  up 1m 44s  3 clients "),
            "{}",
            drawn(40, 40, 0, None)
        );
    }

    #[test]
    fn short_terminal_scrolls_through_all_lines() {
        let shown = server(Some(&page(1)), &page(2));
        for width in [40, 100] {
            let size = Size { width, height: 12 };
            let max = overflow(&shown.tables[0], size);
            assert!(max > 0 && scrolled(width, 12, 0, 0, None).contains("↓ more"));
            let end = scrolled(width, 12, 0, max, None);
            assert!(end.contains('╯') && !end.contains("more"), "{end}");
            assert!(!end.contains("about 20.0 M keys"), "{end}");
            // Scrolling past the end shows nothing.
            scrolled(width, 12, 0, max + 100, None);
        }
    }
}
