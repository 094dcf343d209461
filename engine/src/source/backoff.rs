//! Waiting longer after each failure, never in step with others.

use std::time::Duration;

/// Numbers that are random enough for jitter and the same for the same seed (splitmix64).
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }
}

/// Spreads close numbers far apart; the same number always lands at the same place.
pub(super) const fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// How long to wait after the `failures`-th failure in a row (from 1): doubling from `least` to
/// `most`, of which a random half.
pub(super) fn delay(
    least: Duration,
    most: Duration,
    failures: u32,
    random: &mut Random,
) -> Duration {
    let doublings = failures.saturating_sub(1).min(31);
    let whole = least.saturating_mul(1 << doublings).min(most);
    let micros = u64::try_from(whole.as_micros()).unwrap_or(u64::MAX);
    let half = micros / 2;
    Duration::from_micros(half + random.next() % (micros - half + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_doubles_up_to_its_most_and_keeps_at_least_half() {
        let (least, most) = (Duration::from_millis(50), Duration::from_secs(10));
        let mut random = Random::new(1);
        for (failures, whole_ms) in [(1, 50), (2, 100), (4, 400), (9, 10_000), (u32::MAX, 10_000)] {
            for _ in 0..100 {
                let delay = delay(least, most, failures, &mut random);
                let whole = Duration::from_millis(whole_ms);
                assert!(delay >= whole / 2 && delay <= whole, "{failures}: {delay:?}");
            }
        }
    }

    #[test]
    fn the_same_seed_waits_the_same() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            [random.next(), random.next(), random.next()]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
