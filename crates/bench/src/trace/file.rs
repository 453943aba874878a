//! Reads a trace file line by line.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use siltstone_engine::{Error, MAX_KEY_BYTES, Result};

use super::Line;

/// Calls `visit` with each line that is neither empty nor a comment, in order.
///
/// # Errors
/// [`Error::Io`] if the file cannot be read; [`Error::Invalid`] with the line's number for a
/// malformed line, a key above the limit, and an error of `visit`.
pub fn each_line(path: &Path, visit: &mut dyn FnMut(Line<'_>) -> Result<(), String>) -> Result<()> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| Error::io("open", &name, &error))?;
    let (mut reader, mut line, mut number) = (BufReader::new(file), Vec::new(), 0u64);
    loop {
        line.clear();
        number += 1;
        let read = reader.read_until(b'\n', &mut line);
        if read.map_err(|error| Error::io("read", &name, &error))? == 0 {
            return Ok(());
        }
        let visited = Line::parse(&line).and_then(|line| match line {
            None => Ok(()),
            Some(Line::Request(_, key)) if key.len() > MAX_KEY_BYTES => {
                Err(format!("a key has at most {MAX_KEY_BYTES} bytes"))
            }
            Some(line) => visit(line),
        });
        visited.map_err(|reason| Error::Invalid(format!("{name}, line {number}: {reason}")))?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_line_is_reported_with_file_and_number() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let long = format!("# first\n\nget {}\n", "k".repeat(MAX_KEY_BYTES + 1));
        for (text, message) in
            [("get a\nfetch b\n", "line 2: 'fetch'"), (&long[..], "line 3: a key")]
        {
            std::fs::write(file.path(), text).unwrap();
            let Err(Error::Invalid(reason)) = each_line(file.path(), &mut |_| Ok(())) else {
                panic!("taken: {text:?}")
            };
            assert!(reason.starts_with(&file.path().display().to_string()), "{reason}");
            assert!(reason.contains(message), "{reason}");
        }
        let missing = each_line(Path::new("/no/such/trace"), &mut |_| Ok(()));
        assert!(matches!(missing, Err(Error::Io { .. })));
    }
}
