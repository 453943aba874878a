//! The part of JSON that the catalogue has: objects, lists, strings and integers. A library for all
//! of JSON would be five more crates below every program.
//!
//! Texts are indented by two spaces per level. Reading is driven by the caller, who asks for what
//! must come next, so nesting is bounded by the caller's code.
//!
//! Invariant: a [`Reader`] accepts no text that is not JSON. It does not read numbers with a sign,
//! fraction or exponent, nor escaped surrogates, which no catalogue has.
//!
//! Source: RFC 8259.

use std::fmt::Write as _;

/// An object whose closing brace stands at `level`.
pub(super) fn object<'a>(
    level: usize,
    fields: impl IntoIterator<Item = (&'a str, String)>,
) -> String {
    let fields = fields.into_iter().map(|(name, value)| format!("{}: {value}", string(name)));
    block(['{', '}'], level, fields)
}

/// A list whose closing bracket stands at `level`.
pub(super) fn list(level: usize, items: impl IntoIterator<Item = String>) -> String {
    block(['[', ']'], level, items.into_iter())
}

fn block([open, close]: [char; 2], level: usize, lines: impl Iterator<Item = String>) -> String {
    let newline = |level| format!("\n{:width$}", "", width = 2 * level);
    let lines: Vec<_> = lines.map(|line| newline(level + 1) + &line).collect();
    match lines.is_empty() {
        true => format!("{open}{close}"),
        false => format!("{open}{}{}{close}", lines.join(","), newline(level)),
    }
}

/// A string with quotes and escapes.
pub(super) fn string(text: &str) -> String {
    let mut quoted = String::from('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => quoted.extend(['\\', char]),
            '\u{8}' => quoted.push_str("\\b"),
            '\t' => quoted.push_str("\\t"),
            '\n' => quoted.push_str("\\n"),
            '\u{c}' => quoted.push_str("\\f"),
            '\r' => quoted.push_str("\\r"),
            '\0'..' ' => _ = write!(quoted, "\\u{:04x}", u32::from(char)),
            _ => quoted.push(char),
        }
    }
    quoted + "\""
}

/// Reads one value after another. The errors state what is wrong.
pub(super) struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Reader { text, at: 0 }
    }

    /// Reads an object, which `what` names: `field` reads the value of each name.
    pub(super) fn object(
        &mut self,
        what: &str,
        mut field: impl FnMut(&mut Self, String) -> Result<(), String>,
    ) -> Result<(), String> {
        self.items([b'{', b'}'], &format!("{what} is not an object"), |reader| {
            let name = reader.string()?;
            reader.expect(b':')?;
            field(reader, name)
        })
    }

    /// Reads a list, which `what` names: `item` reads each value.
    pub(super) fn list(
        &mut self,
        what: &str,
        item: impl FnMut(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        self.items([b'[', b']'], &format!("{what} is not a list"), item)
    }

    fn items(
        &mut self,
        [open, close]: [u8; 2],
        mistake: &str,
        mut item: impl FnMut(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        if !self.skip(open) {
            return Err(mistake.to_owned());
        }
        if self.skip(close) {
            return Ok(());
        }
        loop {
            item(self)?;
            if self.skip(close) {
                return Ok(());
            }
            self.expect(b',')?;
        }
    }

    pub(super) fn string(&mut self) -> Result<String, String> {
        if !self.skip(b'"') {
            return Err(format!("no string at byte {}", self.at));
        }
        let start = self.at;
        let mut bytes = Vec::new();
        loop {
            match self.next() {
                Some(b'"') => break,
                Some(b'\\') => {
                    let char = self.escaped();
                    let char = char.ok_or_else(|| format!("wrong escape at byte {}", self.at))?;
                    bytes.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
                }
                Some(byte) if byte >= b' ' => bytes.push(byte),
                _ => return Err(format!("no end of the string at byte {start}")),
            }
        }
        String::from_utf8(bytes).map_err(|_| format!("the string at byte {start} is not UTF-8"))
    }

    /// What follows a backslash.
    fn escaped(&mut self) -> Option<char> {
        Some(match self.next()? {
            byte @ (b'"' | b'\\' | b'/') => byte.into(),
            b'b' => '\u{8}',
            b't' => '\t',
            b'n' => '\n',
            b'f' => '\u{c}',
            b'r' => '\r',
            b'u' => {
                let mut digits = || char::from(self.next()?).to_digit(16);
                let code = (0..4).try_fold(0, |code, _| Some(code * 16 + digits()?))?;
                char::from_u32(code)?
            }
            _ => return None,
        })
    }

    pub(super) fn number(&mut self) -> Result<u64, String> {
        self.skip_whitespace();
        let rest = &self.text[self.at..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let text = std::str::from_utf8(&rest[..digits]).ok();
        let text = text.filter(|text| text.len() == 1 || !text.starts_with('0'));
        let number = text.and_then(|text| text.parse().ok());
        let number = number.ok_or_else(|| format!("no number of 64 bits at byte {}", self.at))?;
        self.at += digits;
        Ok(number)
    }

    /// Checks that nothing but white space follows.
    pub(super) fn end(&mut self) -> Result<(), String> {
        self.skip_whitespace();
        match self.at == self.text.len() {
            true => Ok(()),
            false => Err(format!("trailing characters at byte {}", self.at)),
        }
    }

    fn next(&mut self) -> Option<u8> {
        let byte = *self.text.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    /// Skips white space, and `byte` if it follows.
    fn skip(&mut self, byte: u8) -> bool {
        self.skip_whitespace();
        let is_next = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, byte: u8) -> Result<(), String> {
        match self.skip(byte) {
            true => Ok(()),
            false => Err(format!("no '{}' at byte {}", char::from(byte), self.at)),
        }
    }

    fn skip_whitespace(&mut self) {
        let rest = &self.text[self.at..];
        let is_space = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        self.at += rest.iter().take_while(is_space).count();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_of_all_characters_read_back_and_are_those_of_serde_json() {
        let all: Vec<char> = ('\0'..=char::MAX).collect();
        for chars in all.chunks(1000) {
            let text: String = chars.iter().collect();
            let quoted = string(&text);
            assert_eq!(quoted, serde_json::to_string(&text).unwrap());
            let mut reader = Reader::new(quoted.as_bytes());
            assert_eq!(reader.string().unwrap(), text);
            reader.end().unwrap();
        }
        let escapes = br#" "\u0041\/\"\u00e9" "#;
        assert_eq!(Reader::new(escapes).string().unwrap(), "A/\"é");
    }

    #[test]
    fn strings_that_are_not_json_are_rejected() {
        for text in [
            &b""[..],
            b"x",
            b"\"",
            b"\"a",
            b"\"\\\"",
            b"\"\\x\"",
            b"\"\\u12\"",
            b"\"\\u+123\"",
            b"\"\\ud800\"",
            b"\"\n\"",
            b"\"\xff\"",
        ] {
            let found = Reader::new(text).string();
            assert!(found.is_err(), "{}: {found:?}", text.escape_ascii());
        }
    }

    /// Any text that the reader accepts, `serde_json` accepts with the same content.
    #[test]
    fn changed_texts_are_read_as_by_serde_json_or_not_at_all() {
        type Lists = std::collections::BTreeMap<String, Vec<u64>>;
        let read = |text: &[u8]| {
            let (mut lists, mut reader) = (Lists::new(), Reader::new(text));
            reader.object("it", |reader, name| {
                let mut list = Vec::new();
                reader.list("a field", |reader| reader.number().map(|item| list.push(item)))?;
                lists.insert(name, list);
                Ok(())
            })?;
            reader.end().map(|()| lists)
        };
        let lists = Lists::from([("a".into(), vec![]), ("b\n".into(), vec![0, 12, u64::MAX])]);
        let numbers = |list: &Vec<u64>| list.iter().map(u64::to_string).collect::<Vec<_>>();
        let text = object(0, lists.iter().map(|(name, of)| (&**name, list(1, numbers(of)))));
        assert_eq!(read(text.as_bytes()), Ok(lists));
        let mut accepted = 0;
        for at in 0..text.len() {
            for byte in b"\"\\{}[],: \n\t1a\0\xff" {
                let mut changed = text.clone().into_bytes();
                changed[at] = *byte;
                let Ok(lists) = read(&changed) else { continue };
                let expected: Lists = serde_json::from_slice(&changed).unwrap();
                assert_eq!(lists, expected, "{}", changed.escape_ascii());
                accepted += 1;
            }
            assert!(read(&text.as_bytes()[..at]).is_err());
        }
        assert!(accepted > text.len(), "{accepted}");
    }
}
