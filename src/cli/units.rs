//! Values with units.

use groth16_gpu::{Error, Result};
use std::time::Duration;

/// A number of seconds above 0, which may have a fraction.
pub fn parse_seconds(text: &str) -> Result<Duration> {
    let seconds = text.parse().ok().filter(|s| *s > 0.0);
    seconds
        .and_then(|s| Duration::try_from_secs_f64(s).ok())
        .ok_or_else(|| Error::Usage(format!("`{text}` is not a number of seconds above 0")))
}

/// Bytes, with an optional unit: KiB, MiB, GiB, TiB (powers of 1024), KB, MB, GB, TB (of 1000).
pub fn parse_size(text: &str) -> Result<u64> {
    let bad = || {
        Error::Usage(format!(
            "`{text}` is not a size such as 16GiB, 900MiB or 1000000"
        ))
    };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kib" | "k" => 1 << 10,
        "mib" | "m" => 1 << 20,
        "gib" | "g" => 1 << 30,
        "tib" | "t" => 1 << 40,
        "kb" => 1000,
        "mb" => 1000_u64.pow(2),
        "gb" => 1000_u64.pow(3),
        "tb" => 1000_u64.pow(4),
        _ => return Err(bad()),
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(factor))
        .ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("16GiB").unwrap(), 16 << 30);
        assert_eq!(parse_size("900 MiB").unwrap(), 900 << 20);
        assert_eq!(parse_size("12").unwrap(), 12);
        assert_eq!(parse_size("2GB").unwrap(), 2_000_000_000);
        for bad in ["", "GiB", "-1", "1.5GiB", "1XB", "99999999999TiB"] {
            assert_eq!(parse_size(bad).unwrap_err().class(), "usage", "{bad}");
        }
    }

    #[test]
    fn seconds() {
        assert_eq!(parse_seconds("90").unwrap(), Duration::from_secs(90));
        assert_eq!(parse_seconds("0.25").unwrap(), Duration::from_millis(250));
        for bad in ["", "0", "-1", "1s", "NaN", "inf", "1e300"] {
            assert_eq!(parse_seconds(bad).unwrap_err().class(), "usage", "{bad}");
        }
    }
}
