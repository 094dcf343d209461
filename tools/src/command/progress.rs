//! How far a node is, in one line: what it mirrors, how fast, how far behind it is, until when.

use std::fmt::Write as _;
use std::time::Duration;

use engine::metrics::ShardMetrics;

use super::quantity::{Bytes, Count, Span};

/// The numbers of a node at one moment, over all shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    pub partitions: u64,
    pub mirroring: u64,
    pub waiting: u64,
    pub failed: u64,
    pub brokers_unreachable: u64,
    /// Whether no broker of the source gives metadata: what it holds by now is not known.
    pub source_lost: bool,
    /// Bytes of batches that were written, since the start.
    pub appended_bytes: u64,
    pub lag_records: u64,
    pub lag_bytes: u64,
    pub lag_seconds: u64,
    pub clients: u64,
    /// Bytes of batches that were sent to clients, since the start.
    pub served_bytes: u64,
    pub lost_offsets: u64,
}

impl Snapshot {
    /// Adds up what shards have counted. How long one is behind is not added: the longest counts.
    pub fn of<'a>(shards: impl IntoIterator<Item = &'a ShardMetrics>) -> Self {
        let mut sum = Self::default();
        for shard in shards {
            sum.partitions += shard.partitions.value();
            sum.mirroring += shard.partitions_mirroring.value();
            sum.waiting += shard.partitions_waiting.value();
            sum.failed += shard.partitions_failed.value();
            // Each shard has connections of its own to the same brokers.
            let unreachable = shard.source_brokers_unreachable.value();
            sum.brokers_unreachable = sum.brokers_unreachable.max(unreachable);
            sum.source_lost |= shard.source_lost.value() > 0;
            sum.appended_bytes += shard.appended_bytes.value();
            sum.lag_records += shard.lag_records.value();
            sum.lag_bytes += shard.lag_bytes.value();
            sum.lag_seconds = sum.lag_seconds.max(shard.lag_seconds.value());
            sum.clients += shard.client_connections.value();
            sum.served_bytes += shard.served_bytes.value();
            sum.lost_offsets += shard.lost_offsets.value();
        }
        // A node that has just started has not asked anybody yet.
        sum.source_lost &= sum.brokers_unreachable > 0;
        sum
    }

    /// Whether something is different that an operator wants to be told of at once.
    #[must_use]
    pub fn differs_in_state(&self, other: &Self) -> bool {
        let counts = |s: &Self| {
            (s.partitions, s.mirroring, s.waiting, s.failed, s.brokers_unreachable, s.lost_offsets)
        };
        counts(self) != counts(other) || self.source_lost != other.source_lost
    }
}

/// A rate that follows what is measured with a time constant: noise is smoothed away, and what was
/// true a few constants ago is forgotten.
#[derive(Clone, Copy, Debug)]
struct Smoothed {
    per_second: Option<f64>,
    constant: f64,
}

impl Smoothed {
    const fn new(constant: f64) -> Self {
        Self { per_second: None, constant }
    }

    fn add(&mut self, amount: f64, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        let measured = amount / seconds;
        let weight = 1.0 - (-seconds / self.constant).exp();
        let before = self.per_second.unwrap_or(measured);
        self.per_second = Some(before + weight * (measured - before));
    }

    fn per_second(&self) -> f64 {
        self.per_second.unwrap_or(0.0)
    }
}

/// Follows a node from snapshot to snapshot.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Whether a source is mirrored; otherwise only serving is told of.
    mirrors: bool,
    last: Option<Snapshot>,
    /// Bytes per second, shown: short, so that a stall is seen.
    bytes_in: Smoothed,
    bytes_out: Smoothed,
    /// Offsets by which the lag shrinks per second: long, since it decides about the prediction.
    closing: Smoothed,
}

impl Progress {
    /// Nothing is known yet.
    #[must_use]
    pub const fn new(mirrors: bool) -> Self {
        Self {
            mirrors,
            last: None,
            bytes_in: Smoothed::new(3.0),
            bytes_out: Smoothed::new(3.0),
            closing: Smoothed::new(12.0),
        }
    }

    /// Takes the numbers that are true `elapsed` after the ones before.
    pub fn observe(&mut self, now: Snapshot, elapsed: Duration) {
        if let Some(last) = self.last {
            let grown = |now: u64, last: u64| now.saturating_sub(last) as f64;
            self.bytes_in.add(grown(now.appended_bytes, last.appended_bytes), elapsed);
            self.bytes_out.add(grown(now.served_bytes, last.served_bytes), elapsed);
            // A lag that was not known before says nothing of speed.
            if last.lag_records > 0 && now.mirroring == last.mirroring {
                self.closing.add(last.lag_records as f64 - now.lag_records as f64, elapsed);
            }
        }
        self.last = Some(now);
    }

    /// When the lag will be gone if all goes on like this; `None` where it does not shrink.
    #[must_use]
    pub fn caught_up_in(&self) -> Option<Duration> {
        let lag = self.last?.lag_records as f64;
        let seconds = lag / self.closing.per_second();
        (seconds.is_finite() && (0.0..1e9).contains(&seconds))
            .then(|| Duration::from_secs_f64(seconds.ceil()))
    }

    /// The line.
    #[must_use]
    pub fn line(&self) -> String {
        let now = self.last.unwrap_or_default();
        let mut line = String::new();
        if self.mirrors {
            self.mirror_part(&now, &mut line);
        } else {
            let _ = write!(line, "{} partitions", now.partitions);
        }
        if now.clients > 0 || self.bytes_out.per_second() >= 1.0 || !self.mirrors {
            let plural = if now.clients == 1 { "" } else { "s" };
            let rate = rate(self.bytes_out);
            let _ = write!(line, " | out {rate} to {} connection{plural}", now.clients);
        }
        line
    }

    fn mirror_part(&self, now: &Snapshot, line: &mut String) {
        let _ = write!(line, "mirroring {}/{}", now.mirroring, now.partitions);
        let mut beside = Vec::new();
        for (count, state) in [(now.waiting, "waiting"), (now.failed, "FAILED")] {
            if count > 0 {
                beside.push(format!("{count} {state}"));
            }
        }
        if !beside.is_empty() {
            let _ = write!(line, " ({})", beside.join(", "));
        }
        if now.source_lost {
            line.push_str(" | SOURCE LOST, no broker can be used");
        } else if now.brokers_unreachable > 0 {
            let _ = write!(line, " | {} broker(s) UNREACHABLE", now.brokers_unreachable);
        }
        let _ = write!(line, " | in {}", rate(self.bytes_in));
        if now.lag_records > 0 {
            let _ = write!(line, " | behind {} records, ", Count(now.lag_records));
            // Nothing was taken yet that a record's size could be told from.
            if now.lag_bytes > 0 {
                let _ = write!(line, "{}, ", Bytes(now.lag_bytes));
            }
            let _ = write!(line, "{}", Span(Duration::from_secs(now.lag_seconds)));
            match self.caught_up_in() {
                Some(left) => {
                    let _ = write!(line, " | caught up in {}", Span(left));
                }
                None if self.closing.per_second.is_some() => line.push_str(" | not catching up"),
                None => {}
            }
        } else if now.brokers_unreachable > 0 {
            line.push_str(" | lag unknown");
        } else if now.mirroring > 0 {
            line.push_str(" | caught up");
        }
        if now.lost_offsets > 0 {
            let _ = write!(line, " | {} offsets LOST", now.lost_offsets);
        }
    }
}

fn rate(smoothed: Smoothed) -> String {
    // Far below what is shown, and not negative.
    format!("{}/s", Bytes(smoothed.per_second().max(0.0).round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn behind(appended_mb: u64, lag_records: u64) -> Snapshot {
        Snapshot {
            partitions: 12,
            mirroring: 12,
            appended_bytes: appended_mb * 1_000_000,
            lag_records,
            lag_bytes: lag_records * 100,
            lag_seconds: 34,
            ..Snapshot::default()
        }
    }

    #[test]
    fn a_catch_up_says_how_fast_how_far_and_until_when() {
        let mut progress = Progress::new(true);
        for second in 0..10 {
            progress.observe(behind(second * 50, 10_000_000 - second * 500_000), SECOND);
        }
        assert_eq!(
            progress.line(),
            "mirroring 12/12 | in 50.0 MB/s | behind 5.50M records, 550 MB, 34 s | caught up in 11 s"
        );
    }

    #[test]
    fn a_lag_that_grows_is_said_to() {
        let mut progress = Progress::new(true);
        for second in 0..5 {
            progress.observe(behind(second, 1_000 + second * 1_000), SECOND);
        }
        assert_eq!(progress.caught_up_in(), None);
        assert!(progress.line().ends_with("| not catching up"), "{}", progress.line());
    }

    #[test]
    fn what_needs_a_person_stands_out() {
        let mut progress = Progress::new(true);
        let now = Snapshot {
            partitions: 4,
            mirroring: 1,
            waiting: 2,
            failed: 1,
            lost_offsets: 7,
            brokers_unreachable: 1,
            ..Snapshot::default()
        };
        progress.observe(now, SECOND);
        assert_eq!(
            progress.line(),
            "mirroring 1/4 (2 waiting, 1 FAILED) | 1 broker(s) UNREACHABLE | in 0 B/s | lag unknown \
             | 7 offsets LOST"
        );
    }

    #[test]
    fn nobody_is_told_to_be_caught_up_with_a_source_that_is_away() {
        let mut progress = Progress::new(true);
        let now = Snapshot {
            partitions: 4,
            mirroring: 4,
            brokers_unreachable: 1,
            source_lost: true,
            ..Snapshot::default()
        };
        progress.observe(now, SECOND);
        assert_eq!(
            progress.line(),
            "mirroring 4/4 | SOURCE LOST, no broker can be used | in 0 B/s | lag unknown"
        );
    }

    #[test]
    fn serving_alone_tells_of_clients() {
        let mut progress = Progress::new(false);
        let now = Snapshot { partitions: 4, clients: 1, ..Snapshot::default() };
        progress.observe(now, SECOND);
        progress.observe(Snapshot { served_bytes: 2_000_000, ..now }, SECOND);
        assert_eq!(progress.line(), "4 partitions | out 2.00 MB/s to 1 connection");
    }

    #[test]
    fn a_rate_follows_a_change_within_a_few_seconds() {
        let mut rate = Smoothed::new(3.0);
        for _ in 0..10 {
            rate.add(100.0, SECOND);
        }
        for _ in 0..10 {
            rate.add(0.0, SECOND);
        }
        assert!(rate.per_second() < 5.0, "{}", rate.per_second());
    }

    #[test]
    fn a_snapshot_adds_shards_up_but_takes_the_longest_lag() {
        let shards = [ShardMetrics::default(), ShardMetrics::default()];
        for (shard, seconds) in shards.iter().zip([5, 9]) {
            shard.partitions.set(3);
            shard.lag_seconds.set(seconds);
        }
        let sum = Snapshot::of(&shards);
        assert_eq!((sum.partitions, sum.lag_seconds), (6, 9));
        assert!(!sum.differs_in_state(&Snapshot { lag_seconds: 1, ..sum }));
        assert!(sum.differs_in_state(&Snapshot { waiting: 1, ..sum }));
    }
}
