//! Sizes, durations, counts and moments as people write and read them.

use std::fmt;
use std::time::Duration;

/// What a size may look like, for messages.
pub const SIZE_ALLOWED: &str =
    "a number of bytes, or one with KiB, MiB, GiB, TiB (or kB, MB, GB, TB)";
/// What a duration may look like, for messages.
pub const DURATION_ALLOWED: &str = "a number with ms, s, m, h or d, such as 500ms or 7d";

const SIZE_UNITS: [(&str, u64); 13] = [
    ("b", 1),
    ("k", 1 << 10),
    ("kib", 1 << 10),
    ("m", 1 << 20),
    ("mib", 1 << 20),
    ("g", 1 << 30),
    ("gib", 1 << 30),
    ("t", 1 << 40),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
];

const DURATION_UNITS_MS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Reads a size in bytes, such as `1048576`, `512MiB` or `1.5 GB`.
#[must_use]
pub fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let unit = unit.to_ascii_lowercase();
    let factor = match unit.as_str() {
        "" => 1,
        unit => SIZE_UNITS.iter().find(|(name, _)| *name == unit)?.1,
    };
    scaled(number, factor)
}

/// Reads a duration, such as `30s` or `1.5h`. A number without a unit is refused, since nobody can
/// tell what it counts.
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let factor = DURATION_UNITS_MS.iter().find(|(name, _)| *name == unit)?.1;
    scaled(number, factor).map(Duration::from_millis)
}

/// Splits `1.5 GB` into `1.5` and `GB`.
fn split(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (!number.is_empty()).then(|| (number, unit.trim_start()))
}

/// `number` times `factor`, where that is a whole number (`0.5k` is, `0.3` is not).
fn scaled(number: &str, factor: u64) -> Option<u64> {
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    let is_whole = !number.contains('.');
    let product = whole.parse::<u64>().ok()?.checked_mul(factor)?;
    if is_whole {
        return Some(product);
    }
    let places = u32::try_from(decimals.len()).ok().filter(|places| (1..=9).contains(places))?;
    let part = u128::from(decimals.parse::<u64>().ok()?) * u128::from(factor);
    let divisor = 10_u128.pow(places);
    let part = (part % divisor == 0).then_some(part / divisor)?;
    product.checked_add(u64::try_from(part).ok()?)
}

/// Bytes in the unit that people read best: `512 B`, `84.3 MB`, `1.20 GB`.
#[derive(Clone, Copy, Debug)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled_down(f, self.0 as f64, &["B", "kB", "MB", "GB", "TB", "PB"], " ")
    }
}

/// A count with a letter where it is long: `950`, `12.3k`, `1.23M`.
#[derive(Clone, Copy, Debug)]
pub struct Count(pub u64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled_down(f, self.0 as f64, &["", "k", "M", "G", "T", "P"], "")
    }
}

/// Three digits and a unit. What rounds up to a thousand has the next unit.
fn scaled_down(
    f: &mut fmt::Formatter<'_>,
    mut number: f64,
    units: &[&str],
    space: &str,
) -> fmt::Result {
    let mut place = 0;
    while number >= 999.5 && place + 1 < units.len() {
        number /= 1_000.0;
        place += 1;
    }
    let decimals = match number {
        _ if place == 0 => 0,
        small if small < 9.995 => 2,
        middle if middle < 99.95 => 1,
        _ => 0,
    };
    f.pad(&format!("{number:.decimals$}{space}{}", units[place]))
}

/// A count with commas: `1,234,567`.
#[derive(Clone, Copy, Debug)]
pub struct Exactly(pub u64);

impl fmt::Display for Exactly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut text = String::with_capacity(digits.len() * 4 / 3);
        for (place, digit) in digits.chars().enumerate() {
            if place > 0 && (digits.len() - place).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        f.pad(&text)
    }
}

/// A time span in its two largest units: `0 s`, `34 s`, `12 m 5 s`, `3 h 20 m`, `2 d 4 h`.
#[derive(Clone, Copy, Debug)]
pub struct Span(pub Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (days, hours) = (seconds / 86_400, seconds / 3_600 % 24);
        let (minutes, rest) = (seconds / 60 % 60, seconds % 60);
        let text = match (days, hours, minutes) {
            (0, 0, 0) => format!("{rest} s"),
            (0, 0, minutes) => format!("{minutes} m {rest} s"),
            (0, hours, minutes) => format!("{hours} h {minutes} m"),
            (days, hours, _) => format!("{days} d {hours} h"),
        };
        f.pad(&text)
    }
}

/// Milliseconds since 1970 as a moment in UTC: `2023-11-14T22:13:20.000Z`. Kafka's "no timestamp"
/// and what is not within the years 0 to 9999 stays a number.
#[derive(Clone, Copy, Debug)]
pub struct Moment(pub i64);

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const YEAR_10000_MS: i64 = 253_402_300_800_000;
        if !(0..YEAR_10000_MS).contains(&self.0) {
            return write!(f, "{}", self.0);
        }
        let (days, in_day) = (self.0 / 86_400_000, self.0 % 86_400_000);
        let (year, month, day) = date(days);
        let (hour, minute) = (in_day / 3_600_000, in_day / 60_000 % 60);
        let (second, millis) = (in_day / 1_000 % 60, in_day % 1_000);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}

/// The date that is `days` after 1970-01-01, counted in years that begin in March so that the leap
/// day is the last (Howard Hinnant's `civil_from_days`).
const fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + (month <= 2) as i64;
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_of_both_kinds() {
        for (text, bytes) in [
            ("0", 0),
            ("1048576", 1 << 20),
            ("512MiB", 512 << 20),
            ("512mib", 512 << 20),
            ("64 k", 64 << 10),
            ("1.5GB", 1_500_000_000),
            ("0.5KiB", 512),
            ("16T", 16 << 40),
        ] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "MiB", "-1", "1.", "1.2.3", "0.3", "1XB", "1e6", "99999999999999999999"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
        assert_eq!(parse_size("16777216T"), None, "more than 64 bits");
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse_duration("7d"), Some(Duration::from_secs(7 * 86_400)));
        assert_eq!(parse_duration("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(parse_duration("1.5 h"), Some(Duration::from_secs(5_400)));
        for text in ["30", "", "s", "-1s", "1w", "0.5ms"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn numbers_are_shown_with_three_digits() {
        let shown: Vec<_> = [0, 999, 1_000, 84_321_000, 999_999, 1_200_000_000]
            .iter()
            .map(|&bytes| Bytes(bytes).to_string())
            .collect();
        assert_eq!(shown, ["0 B", "999 B", "1.00 kB", "84.3 MB", "1.00 MB", "1.20 GB"]);
        assert_eq!(Count(12_345).to_string(), "12.3k");
        assert_eq!(Exactly(1_234_567).to_string(), "1,234,567");
        assert_eq!(Exactly(12).to_string(), "12");
    }

    #[test]
    fn spans_have_two_units() {
        let shown = |seconds| Span(Duration::from_secs(seconds)).to_string();
        assert_eq!(shown(34), "34 s");
        assert_eq!(shown(725), "12 m 5 s");
        assert_eq!(shown(12_000), "3 h 20 m");
        assert_eq!(shown(187_200), "2 d 4 h");
    }

    #[test]
    fn moments_are_shown_in_utc() {
        assert_eq!(Moment(1_700_000_000_000).to_string(), "2023-11-14T22:13:20.000Z");
        assert_eq!(Moment(951_782_400_001).to_string(), "2000-02-29T00:00:00.001Z");
        assert_eq!(Moment(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Moment(253_402_300_799_999).to_string(), "9999-12-31T23:59:59.999Z");
        assert_eq!(Moment(-1).to_string(), "-1");
        assert_eq!(Moment(i64::MAX).to_string(), i64::MAX.to_string());
    }
}
