//! Inline commands: one line, words separated by spaces, with optional quotes.
//!
//! `"…"` supports `\n \r \t \b \a \\ \"` and `\xHH`; `'…'` supports only `\'`; a closing quote must
//! end its word. Words are unescaped into one buffer, so these are the only arguments that are
//! copied.
//!
//! Source: the Redis protocol specification, "inline commands"; behaviour of `redis-cli`'s quoting.

use super::args::Span;

/// Splits `line` into words, appended to `bytes` and described by `words`. Returns false if a quote
/// is not closed, or a closing quote is not followed by a space.
pub fn split(line: &[u8], bytes: &mut Vec<u8>, words: &mut Vec<Span>) -> bool {
    let mut rest = line;
    loop {
        let Some(begin) = rest.iter().position(|byte| !is_space(*byte)) else { return true };
        rest = &rest[begin..];
        let start = bytes.len();
        match word(rest, bytes) {
            Some(used) => rest = &rest[used..],
            None => return false,
        }
        words.push(Span { start, end: bytes.len() });
    }
}

fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b || byte == 0
}

/// Unescapes one word, and returns the bytes of `text` consumed.
fn word(text: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        match byte {
            _ if is_space(byte) => break,
            b'"' | b'\'' => {
                at += quoted(&text[at + 1..], byte, out)? + 1;
                let ends = text.get(at).is_none_or(|next| is_space(*next));
                return ends.then_some(at);
            }
            _ => out.push(byte),
        }
        at += 1;
    }
    Some(at)
}

/// Unescapes up to the closing quote, and returns the bytes consumed, including the quote.
fn quoted(text: &[u8], quote: u8, out: &mut Vec<u8>) -> Option<usize> {
    let mut at = 0;
    loop {
        match (*text.get(at)?, quote) {
            (byte, _) if byte == quote => return Some(at + 1),
            (b'\\', b'"') => {
                let (byte, used) = escape(&text[at + 1..])?;
                out.push(byte);
                at += used;
            }
            (b'\\', _) if text.get(at + 1) == Some(&b'\'') => {
                out.push(b'\'');
                at += 1;
            }
            (byte, _) => out.push(byte),
        }
        at += 1;
    }
}

/// The byte of an escape sequence, and its length after the backslash.
fn escape(text: &[u8]) -> Option<(u8, usize)> {
    let hex = |at: usize| char::from(*text.get(at)?).to_digit(16);
    match *text.first()? {
        b'x' => match (hex(1), hex(2)) {
            (Some(high), Some(low)) => Some(((high * 16 + low) as u8, 3)),
            _ => Some((b'x', 1)),
        },
        b'n' => Some((b'\n', 1)),
        b'r' => Some((b'\r', 1)),
        b't' => Some((b'\t', 1)),
        b'b' => Some((8, 1)),
        b'a' => Some((7, 1)),
        other => Some((other, 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Option<Vec<String>> {
        let (mut bytes, mut spans) = (Vec::new(), Vec::new());
        split(line.as_bytes(), &mut bytes, &mut spans).then(|| {
            let text = |s: &Span| String::from_utf8_lossy(&bytes[s.start..s.end]).into_owned();
            spans.iter().map(text).collect()
        })
    }

    #[test]
    fn quotes_and_escapes_are_parsed() {
        assert_eq!(words("  set  a \t b ").unwrap(), ["set", "a", "b"]);
        assert_eq!(words(r#"set "a b" 'c d'"#).unwrap(), ["set", "a b", "c d"]);
        assert_eq!(words(r#"x "\x41\n\"\\\q" '\'\n'"#).unwrap(), ["x", "A\n\"\\q", "'\\n"]);
        assert_eq!(words(r#"x """#).unwrap(), ["x", ""]);
        assert_eq!(words("").unwrap(), Vec::<String>::new());
        for bad in [r#"a "b"#, "a 'b", r#"a "b"c"#, r#"a "b\"#] {
            assert_eq!(words(bad), None, "{bad}");
        }
    }
}
