//! Middles and spreads of a few runs.

use std::fmt;

use serde::Serialize;

/// The middle of some runs and their extremes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Spread {
    /// # Panics
    /// Without a single value.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (&least, &most) = (values.first().expect("runs"), values.last().expect("runs"));
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            1 => values[middle],
            _ => f64::midpoint(values[middle - 1], values[middle]),
        };
        Self { median, least, most }
    }
}

/// As many digits as a number of that size deserves.
fn digits(value: f64) -> usize {
    match value.abs() {
        0.0 => 0,
        100.0.. => 0,
        10.0.. => 1,
        0.1.. => 2,
        _ => 3,
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = digits(self.median);
        let Self { median, least, most } = self;
        let text = format!("{median:.digits$} ({least:.digits$}..{most:.digits$})");
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_between_the_two_middles() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Spread { median: 2.0, least: 1.0, most: 3.0 });
        assert!((Spread::of([4.0, 1.0, 2.0, 3.0]).median - 2.5).abs() < 1e-9);
        assert_eq!(Spread::of([0.25, 0.5, 0.75]).to_string(), "0.50 (0.25..0.75)");
    }
}
