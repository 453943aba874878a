//! Parses the Prometheus text format.
//!
//! A line is `name{label="value",…} number`; `#` begins a comment. In a label's value `\\`, `\"`
//! and `\n` are a backslash, a quote and a line break. A timestamp after the number is ignored.
//!
//! Source: the Prometheus documentation, "Text-based format", version 0.0.4.

use std::collections::BTreeMap;

/// One number of a page.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

/// All numbers of a page, in order; the error names the invalid line.
pub(crate) fn parse(text: &str) -> Result<Vec<Row>, String> {
    let lines = text.lines().enumerate().map(|(at, line)| (at, line.trim()));
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(at, line)| {
            row(line).ok_or_else(|| format!("line {} of the page is not a metric: {line}", at + 1))
        })
        .collect()
}

fn row(line: &str) -> Option<Row> {
    let end = line.find(['{', ' ', '\t'])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner.trim_start();
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            labels.insert(label.trim().to_owned(), value);
            // A comma may follow the last label, too.
            rest = after.trim_start();
            rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
        }
        rest = &rest[1..];
    }
    let value = rest.split_whitespace().next()?.parse().ok()?;
    (!name.is_empty()).then(|| Row { name: name.to_owned(), labels, value })
}

/// A label's value up to its closing quote, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, labels: &[(&str, &str)], value: f64) -> Row {
        let labels = labels.iter().map(|(l, v)| ((*l).to_owned(), (*v).to_owned())).collect();
        Row { name: name.to_owned(), labels, value }
    }

    #[test]
    fn numbers_are_parsed_with_their_labels() {
        let page = "# HELP a What.\n# TYPE a counter\na 3\n\nb{} -1.5e3 1700000000\n\
                    c{t=\"x y\", u=\"}\",} +Inf\nd{t=\"a\\\\b\\\"c\\nd,e=\"} 0.25\n";
        let rows = [
            row("a", &[], 3.0),
            row("b", &[], -1500.0),
            row("c", &[("t", "x y"), ("u", "}")], f64::INFINITY),
            row("d", &[("t", "a\\b\"c\nd,e=")], 0.25),
        ];
        assert_eq!(parse(page).unwrap(), rows);
    }

    #[test]
    fn other_text_is_refused_with_its_line() {
        for bad in ["a", "a b", "{a=\"b\"} 1", "a{b=\"c} 1", "a{b=\"c\" 1", "a{b} 1", "a{b=\"\\"] {
            let error = parse(&format!("good 1\n{bad}\n")).unwrap_err();
            assert!(error.contains("line 2"), "{bad}: {error}");
        }
    }
}
