//! Helpers shared by the tests of the program.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::Path;

/// Every file below a directory with its bytes.
pub(crate) fn contents(dir: impl AsRef<Path>) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in dir.as_ref().read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(contents(&path));
        } else {
            files.insert(path.display().to_string(), std::fs::read(&path).unwrap());
        }
    }
    files
}

/// A command, or an array of bulk strings.
pub(crate) fn encode(words: &[&str]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| request += &format!("${}\r\n{word}\r\n", word.len()));
    request.into_bytes()
}

/// A command of words without line ends; `None` at the end of the connection.
pub(crate) fn read_command(input: &mut impl BufRead) -> Option<Vec<String>> {
    let mut line = || {
        let mut line = String::new();
        (input.read_line(&mut line).ok()? > 0).then(|| line.trim_end().to_owned())
    };
    let count = line()?.strip_prefix('*')?.parse().ok()?;
    (0..count)
        .map(|_| {
            line()?;
            line()
        })
        .collect()
}
