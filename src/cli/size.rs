//! Sizes as people write them: `24GiB`, `512MiB`, `1.5 GB`. Who writes `24` does not mean bytes, so only 0 has no unit.

/// Bytes; `None` for what is no size.
pub fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..digits].parse().ok()?;
    let unit = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" if number == 0.0 => 1.0,
        "b" => 1.0,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1024f64.powi(2),
        "g" | "gib" => 1024f64.powi(3),
        "t" | "tib" => 1024f64.powi(4),
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        _ => return None,
    };
    let bytes = number * unit;
    (bytes < 2f64.powi(62)).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn sizes_have_binary_and_decimal_units() {
        assert_eq!(parse("24GiB"), Some(24 << 30));
        assert_eq!(parse("1.5 MiB"), Some(3 << 19));
        assert_eq!(parse("2gb"), Some(2_000_000_000));
        assert_eq!(parse("8m"), Some(8 << 20));
        assert_eq!(parse("0"), Some(0));
        assert_eq!(parse("4096B"), Some(4096));
        for bad in ["", "24", "GiB", "-1GiB", "1.2.3", "4 parsecs", "1e400TiB"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
