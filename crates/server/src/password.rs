//! Comparison of passwords, for all protocols and the metrics port.

/// Compares in time independent of the position of the first difference.
pub(crate) fn constant_time_eq(secret: &[u8], given: &[u8]) -> bool {
    let differences = given.iter().enumerate().fold(0u8, |differences, (index, byte)| {
        // For a shorter secret any byte will do: the lengths differ.
        differences | (byte ^ secret[index % secret.len().max(1)..].first().unwrap_or(&0))
    });
    differences == 0 && secret.len() == given.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_compared_completely() {
        assert!(constant_time_eq(b"secret", b"secret"));
        for wrong in ["", "s", "secre", "secrets", "secretsecret", "Secret"] {
            assert!(!constant_time_eq(b"secret", wrong.as_bytes()), "{wrong}");
        }
    }
}
