//! JSON as Lua values.
//!
//! Besides JSON, numbers may be hexadecimal, infinite or NaN, as in lua-cjson.

use mlua::{Lua, Value};

use super::cjson::Settings;
use super::library::{Fault, string};

enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    String(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Error(&'static str),
}

impl Token {
    /// Its name in errors.
    fn name(&self) -> &'static str {
        match self {
            Token::ObjectBegin => "T_OBJ_BEGIN",
            Token::ObjectEnd => "T_OBJ_END",
            Token::ArrayBegin => "T_ARR_BEGIN",
            Token::ArrayEnd => "T_ARR_END",
            Token::String(_) => "T_STRING",
            Token::Number(_) => "T_NUMBER",
            Token::Boolean(_) => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::Colon => "T_COLON",
            Token::Comma => "T_COMMA",
            Token::End => "T_END",
            Token::Error(text) => text,
        }
    }
}

/// Decodes a text that is one value.
pub(super) fn decode(lua: &Lua, text: &[u8], settings: &Settings) -> Result<Value, Fault> {
    if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
        return Err(Fault::At("JSON parser does not support UTF-16 or UTF-32".to_owned()));
    }
    let mut parser = Parser { lua, text, at: 0, token_at: 0, settings };
    let first = parser.next();
    let value = parser.value(first, 0)?;
    match parser.next() {
        Token::End => Ok(value),
        token => Err(parser.expected("the end", &token)),
    }
}

struct Parser<'a> {
    lua: &'a Lua,
    text: &'a [u8],
    /// Bytes parsed.
    at: usize,
    /// Start of the last token, or the place of its error.
    token_at: usize,
    settings: &'a Settings,
}

impl Parser<'_> {
    fn expected(&self, what: &str, found: &Token) -> Fault {
        let (found, at) = (found.name(), self.token_at + 1);
        Fault::At(format!("Expected {what} but found {found} at character {at}"))
    }

    fn value(&mut self, token: Token, depth: usize) -> Result<Value, Fault> {
        match token {
            Token::String(bytes) => string(self.lua, bytes),
            Token::Number(number) => Ok(Value::Number(number)),
            Token::Boolean(value) => Ok(Value::Boolean(value)),
            Token::Null => Ok(Value::NULL),
            Token::ObjectBegin => self.object(depth + 1),
            Token::ArrayBegin => self.array(depth + 1),
            token => Err(self.expected("value", &token)),
        }
    }

    fn check_depth(&self, depth: usize) -> Result<(), Fault> {
        if depth > self.settings.decode_max_depth {
            let at = self.at;
            return Err(Fault::At(format!(
                "Found too many nested data structures ({depth}) at character {at}"
            )));
        }
        Ok(())
    }

    fn object(&mut self, depth: usize) -> Result<Value, Fault> {
        self.check_depth(depth)?;
        let table = self.lua.create_table()?;
        let mut token = self.next();
        if matches!(token, Token::ObjectEnd) {
            return Ok(Value::Table(table));
        }
        loop {
            let Token::String(key) = token else {
                return Err(self.expected("object key string", &token));
            };
            let colon = self.next();
            if !matches!(colon, Token::Colon) {
                return Err(self.expected("colon", &colon));
            }
            let first = self.next();
            let value = self.value(first, depth)?;
            table.raw_set(self.lua.create_string(key)?, value)?;
            match self.next() {
                Token::ObjectEnd => return Ok(Value::Table(table)),
                Token::Comma => token = self.next(),
                token => return Err(self.expected("comma or object end", &token)),
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, Fault> {
        self.check_depth(depth)?;
        let table = self.lua.create_table()?;
        let mut token = self.next();
        if matches!(token, Token::ArrayEnd) {
            return Ok(Value::Table(table));
        }
        for index in 1.. {
            let value = self.value(token, depth)?;
            table.raw_set(index, value)?;
            match self.next() {
                Token::ArrayEnd => break,
                Token::Comma => token = self.next(),
                token => return Err(self.expected("comma or array end", &token)),
            }
        }
        Ok(Value::Table(table))
    }

    fn next(&mut self) -> Token {
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        while self.text.get(self.at).is_some_and(is_space) {
            self.at += 1;
        }
        self.token_at = self.at;
        let Some(&byte) = self.text.get(self.at) else { return Token::End };
        let single = match byte {
            b'{' => Token::ObjectBegin,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayBegin,
            b']' => Token::ArrayEnd,
            b':' => Token::Colon,
            b',' => Token::Comma,
            b'"' => return self.string(),
            b'-' | b'+' | b'0'..=b'9' | b'i' | b'I' | b'N' => return self.number(),
            _ => return self.word(),
        };
        self.at += 1;
        single
    }

    fn word(&mut self) -> Token {
        let rest = &self.text[self.at..];
        for (word, token) in [
            (&b"true"[..], Token::Boolean(true)),
            (b"false", Token::Boolean(false)),
            (b"null", Token::Null),
        ] {
            if rest.starts_with(word) {
                self.at += word.len();
                return token;
            }
        }
        if rest.starts_with(b"nan") { self.number() } else { Token::Error("invalid token") }
    }

    fn number(&mut self) -> Token {
        let rest = &self.text[self.at..];
        let is_part =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        let end = rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
        let word = String::from_utf8_lossy(&rest[..end]).to_lowercase();
        let (sign, digits) = match word.strip_prefix('-') {
            Some(digits) => (-1.0, digits),
            None => (1.0, word.strip_prefix('+').unwrap_or(&word)),
        };
        let hexadecimal = digits.strip_prefix("0x");
        let is_json = digits.starts_with(|digit: char| digit.is_ascii_digit())
            && !word.starts_with('+')
            && (!digits.starts_with('0') || !digits[1..].starts_with(|d: char| d.is_ascii_digit()));
        if !self.settings.decode_invalid && (!is_json || hexadecimal.is_some()) {
            return Token::Error("invalid number");
        }
        let number = match hexadecimal {
            Some(digits) => u64::from_str_radix(digits, 16).ok().map(|number| number as f64),
            None => digits.parse::<f64>().ok(),
        };
        let Some(number) = number else {
            let is_number = digits.starts_with(|digit: char| digit.is_ascii_digit());
            return Token::Error(if is_number { "invalid number" } else { "invalid token" });
        };
        self.at += end;
        Token::Number(sign * number)
    }

    fn string(&mut self) -> Token {
        let mut out = Vec::new();
        let mut at = self.at + 1;
        loop {
            match self.text.get(at) {
                None => {
                    self.token_at = at;
                    return Token::Error("unexpected end of string");
                }
                Some(b'"') => break,
                Some(b'\\') => {
                    let Some(used) = self.escape(at, &mut out) else {
                        self.token_at = at;
                        let is_unicode = self.text.get(at + 1) == Some(&b'u');
                        return Token::Error(match is_unicode {
                            true => "invalid unicode escape code",
                            false => "invalid escape code",
                        });
                    };
                    at += used;
                }
                Some(byte) => {
                    out.push(*byte);
                    at += 1;
                }
            }
        }
        self.at = at + 1;
        Token::String(out)
    }

    /// Decodes an escape sequence, and returns its length.
    fn escape(&self, at: usize, out: &mut Vec<u8>) -> Option<usize> {
        let byte = match self.text.get(at + 1)? {
            byte @ (b'"' | b'\\' | b'/') => *byte,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let (code, used) = match self.unit(at)? {
                    high @ 0xd800..0xdc00 => match self.unit(at + 6)? {
                        low @ 0xdc00..0xe000 => {
                            (0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00), 12)
                        }
                        _ => return None,
                    },
                    code => (code, 6),
                };
                let text = char::from_u32(code)?;
                out.extend_from_slice(text.encode_utf8(&mut [0; 4]).as_bytes());
                return Some(used);
            }
            _ => return None,
        };
        out.push(byte);
        Some(2)
    }

    /// The UTF-16 unit of an escape sequence.
    fn unit(&self, at: usize) -> Option<u32> {
        let digits = self.text.get(at..at + 6)?.strip_prefix(b"\\u")?;
        let digits = std::str::from_utf8(digits).ok()?;
        digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then_some(())?;
        u32::from_str_radix(digits, 16).ok()
    }
}
