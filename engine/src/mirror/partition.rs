//! The life of one mirrored partition: where to go on, what to do when the source says no.
//!
//! ```text
//!             log is empty                        offset out of range
//!   begin ───────────────▶ Locating ◀───────────────────────────┐
//!     │                       │ earliest, latest                │
//!     │ log has an epoch      ▼                                 │
//!     └─────▶ Aligning ──▶ Mirroring ───────────────────────────┘
//!                │            │  ▲
//!                │ error      │  │ time (back to the beginning)
//!                └─▶ Waiting ◀┘──┘
//!
//!   from anywhere: DiskFailed, until the log could be opened again
//!                  Failed, which a person ends
//! ```
//!
//! It knows neither socket nor file: it is told what came and where the log ends, and answers with
//! effects. The log is the only truth about where to go on.

use std::fmt;
use std::time::Duration;

use wire::api::ErrorCode;
use wire::ids::{LeaderEpoch, Offset, TopicId};

use super::admit::{Admission, Expectation, Refusal};
use crate::ids::Now;

/// What a partition is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Asking the source where its log begins and ends.
    Locating,
    /// Asking the source where our last epoch ends there.
    Aligning,
    /// Taking batches.
    Mirroring,
    /// Something failed that may mend itself; it begins again at a set time.
    Waiting,
    /// The disk refused. The log takes nothing until it was opened again, which is tried at set times.
    DiskFailed,
    /// Something failed that a person must look at. All other partitions go on.
    Failed,
}

impl Phase {
    /// Every phase, for metrics and tests.
    pub const ALL: [Self; 6] = [
        Self::Locating,
        Self::Aligning,
        Self::Mirroring,
        Self::Waiting,
        Self::DiskFailed,
        Self::Failed,
    ];

    /// The phases that may follow this one.
    #[must_use]
    pub const fn next(self) -> &'static [Self] {
        match self {
            Self::Locating => {
                &[Self::Locating, Self::Mirroring, Self::Waiting, Self::DiskFailed, Self::Failed]
            }
            Self::Aligning => &[Self::Mirroring, Self::Waiting, Self::DiskFailed, Self::Failed],
            Self::Mirroring => {
                &[Self::Mirroring, Self::Locating, Self::Waiting, Self::DiskFailed, Self::Failed]
            }
            Self::Waiting | Self::DiskFailed => &Self::ALL,
            Self::Failed => &[Self::Failed],
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Locating => "locating",
            Self::Aligning => "aligning",
            Self::Mirroring => "mirroring",
            Self::Waiting => "waiting",
            Self::DiskFailed => "disk failed",
            Self::Failed => "failed",
        })
    }
}

/// Where the log begins and ends, as the log itself says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPosition {
    pub start: Offset,
    /// The offset after the last one.
    pub end: Offset,
    /// The epoch of the last batch, or unknown.
    pub last_epoch: LeaderEpoch,
    /// Whether the log was made just now: then where it starts is no loss.
    pub is_new: bool,
}

impl LogPosition {
    /// Whether the log holds no offsets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

/// Offsets that the source no longer had when we came for them. Recorded, never silent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The first offset that is missing here.
    pub first: Offset,
    /// The offset after the last one missing.
    pub next: Offset,
    pub reason: LossReason,
}

/// Why offsets were gone at the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// The log start moved to the beginning of a batch, as retention moves it. DeleteRecords with
    /// an offset that is a batch's first looks the same from outside.
    Retention,
    /// The log start moved into the middle of a batch, as only DeleteRecords moves it.
    DeleteRecords,
    /// The log start moved past all that the source has; nothing tells by whom.
    LogStartMoved,
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Retention => "retention",
            Self::DeleteRecords => "DeleteRecords",
            Self::LogStartMoved => "the log start moved past the last record",
        })
    }
}

/// Why a partition stopped and what a person can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The source sent bytes that may not enter. Nothing of them was written.
    Refused(Refusal),
    /// Our log has batches of an epoch that ended earlier at the source: the source elected a
    /// leader that had lost them.
    Diverged { epoch: LeaderEpoch, source_end: Offset, log_end: Offset },
    /// The source's log ends before ours.
    SourceShorter { source_end: Offset, log_end: Offset },
    /// The topic at the source is another one under the same name.
    Recreated { ours: TopicId, theirs: TopicId },
    /// The topic is gone at the source. What was mirrored stays.
    SourceDeleted,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => {
                write!(f, "refused {refusal}; check the source's log with its own tools")
            }
            Self::Diverged { epoch, source_end, log_end } => write!(
                f,
                "epoch {epoch} ends at {source_end} at the source but our log goes on to {log_end}: \
                 an unclean leader election lost records there; compare both logs, then remove the \
                 partition's folder here to mirror it anew"
            ),
            Self::SourceShorter { source_end, log_end } => write!(
                f,
                "the source's log ends at {source_end}, ours at {log_end}: records were lost there; \
                 compare both logs, then remove the partition's folder here to mirror it anew"
            ),
            Self::Recreated { ours, theirs } => write!(
                f,
                "the topic was created again at the source (id {theirs}, ours is {ours}); remove or \
                 rename the topic's folders here to mirror the new one"
            ),
            Self::SourceDeleted => {
                f.write_str("the topic was deleted at the source; what was mirrored is kept")
            }
        }
    }
}

/// What the shard is to do. Effects are carried out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Ask the source for the earliest and the latest offset; answer with [`Partition::offsets`].
    Locate,
    /// Ask the source where this epoch ends; answer with [`Partition::end_of_epoch`].
    AskEndOfEpoch(LeaderEpoch),
    /// Fetch from here on.
    Fetch { offset: Offset, last_fetched_epoch: LeaderEpoch },
    /// Fetch no more until the next `Fetch`.
    StopFetching,
    /// Drop what the log holds and begin it anew at this offset.
    StartAt(Offset),
    /// The source's log starts later than ours: it follows to [`Partition::start`], as far as it is
    /// written.
    RaiseLogStart,
    /// Write this down and say it loudly.
    Loss(Loss),
    /// Ask for newer metadata.
    Refresh,
    /// Say loudly that the disk refused, and why.
    DiskFailed(String),
    /// Open the log again, through recovery; answer with [`Partition::reopened`], or with
    /// [`Partition::disk_failed`] where the disk still refuses.
    Reopen,
    /// Say loudly that this partition has stopped.
    Failed(Failure),
}

/// How long to wait after the first failure that may mend itself.
const RETRY_LEAST: Duration = Duration::from_millis(100);
/// How long to wait at most: an operator who mends something sees it taken up within this time.
const RETRY_MOST: Duration = Duration::from_secs(30);
/// How often bytes that were refused at the same offset are asked for again: damage on the way
/// here mends itself, damage in the source's log does not.
const REFUSALS_MAX: u32 = 3;

/// One mirrored partition. Lives on the shard that owns the partition.
#[derive(Debug)]
pub struct Partition {
    phase: Phase,
    position: LogPosition,
    source_epoch: LeaderEpoch,
    high_watermark: Offset,
    retry_at: Option<Now>,
    attempts: u32,
    refusals: u32,
    /// Where a jump of the source's log start began, until the first batch after it tells its kind.
    jump: Option<(Offset, Offset)>,
    reason: Option<String>,
    /// The source has no such topic. It may come back as the one that it was.
    source_is_gone: bool,
}

impl Partition {
    /// A partition whose log stands at `position`; it does nothing before [`Partition::begin`].
    #[must_use]
    pub fn new(position: LogPosition) -> Self {
        Self {
            phase: Phase::Waiting,
            position,
            source_epoch: LeaderEpoch::UNKNOWN,
            high_watermark: Offset(-1),
            retry_at: None,
            attempts: 0,
            refusals: 0,
            jump: None,
            reason: None,
            source_is_gone: false,
        }
    }

    /// What it is doing.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// Why it waits or has failed.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Whether it failed because the source has no such topic.
    #[must_use]
    pub const fn source_is_gone(&self) -> bool {
        self.source_is_gone
    }

    /// The offset that it takes next.
    #[must_use]
    pub const fn next(&self) -> Offset {
        self.position.end
    }

    /// Where the source's log starts, as far as ours reaches.
    #[must_use]
    pub const fn start(&self) -> Offset {
        self.position.start
    }

    /// Offsets that the source has and we have not; `None` before the source told its end.
    #[must_use]
    pub fn lag(&self) -> Option<u64> {
        let lag = self.high_watermark.0.checked_sub(self.position.end.0)?;
        (self.high_watermark.0 >= 0).then(|| u64::try_from(lag).unwrap_or(0))
    }

    /// When [`Partition::on_time`] must be called.
    #[must_use]
    pub const fn deadline(&self) -> Option<Now> {
        self.retry_at
    }

    /// Takes up mirroring from where the log ends.
    pub fn begin(&mut self, effects: &mut Vec<Effect>) {
        self.retry_at = None;
        if self.position.is_empty() {
            self.enter(Phase::Locating);
            effects.push(Effect::Locate);
        } else if self.position.last_epoch == LeaderEpoch::UNKNOWN {
            self.fetch(effects);
        } else {
            self.enter(Phase::Aligning);
            effects.push(Effect::AskEndOfEpoch(self.position.last_epoch));
        }
    }

    /// The source's leader of this partition has this epoch.
    pub fn leader(&mut self, epoch: LeaderEpoch) {
        self.source_epoch = self.source_epoch.max(epoch);
    }

    /// What fetched bytes must be held against.
    #[must_use]
    pub fn expectation(&self) -> Expectation {
        Expectation {
            next: self.position.end,
            log_is_empty: self.position.is_empty(),
            last_epoch: self.position.last_epoch,
            source_epoch: self.source_epoch,
        }
    }

    /// The source's log begins and ends here.
    pub fn offsets(&mut self, earliest: Offset, latest: Offset, effects: &mut Vec<Effect>) {
        if self.phase != Phase::Locating {
            return;
        }
        let end = self.position.end;
        if end > latest {
            let failure = Failure::SourceShorter { source_end: latest, log_end: end };
            return self.fail(failure, effects);
        }
        if end < earliest {
            if !self.position.is_new {
                // Of a jump whose kind is not told yet this is the rest.
                let first = self.jump.map_or(end, |(first, _)| first);
                self.jump = Some((first, earliest));
            }
            effects.push(Effect::StartAt(earliest));
            self.position =
                LogPosition { start: earliest, end: earliest, is_new: false, ..self.position };
            self.position.last_epoch = LeaderEpoch::UNKNOWN;
            if earliest == latest {
                self.settle_jump(LossReason::LogStartMoved, effects);
            }
        }
        self.position.is_new = false;
        self.high_watermark = self.high_watermark.max(latest);
        self.fetch(effects);
    }

    /// At the source, `epoch` (ours or the greatest below) ends at `end`; both are unknown (-1)
    /// where the source has no such epoch.
    pub fn end_of_epoch(&mut self, epoch: LeaderEpoch, end: Offset, effects: &mut Vec<Effect>) {
        if self.phase != Phase::Aligning {
            return;
        }
        self.check_alignment(epoch, end, effects);
    }

    /// A Fetch answered that our last epoch ended earlier at the source (KIP-595's divergence).
    pub fn diverging(&mut self, epoch: LeaderEpoch, end: Offset, effects: &mut Vec<Effect>) {
        if self.phase != Phase::Mirroring {
            return;
        }
        self.check_alignment(epoch, end, effects);
    }

    fn check_alignment(&mut self, epoch: LeaderEpoch, end: Offset, effects: &mut Vec<Effect>) {
        let log_end = self.position.end;
        if epoch == self.position.last_epoch && end >= log_end {
            return self.fetch(effects);
        }
        let failure = Failure::Diverged { epoch, source_end: end, log_end };
        self.fail(failure, effects);
    }

    /// A Fetch brought bytes and this became of them. The position moves with what was admitted.
    pub fn admitted(&mut self, admission: &Admission, now: Now, effects: &mut Vec<Effect>) {
        if admission.length > 0 {
            self.position.end = admission.next;
            self.position.last_epoch = admission.last_epoch;
            (self.attempts, self.refusals) = (0, 0);
        }
        match &admission.refusal {
            None => self.fetch(effects),
            Some(refusal) if refusal.fault.is_stale_metadata() => {
                effects.push(Effect::Refresh);
                self.wait(refusal.to_string(), now, effects);
            }
            Some(refusal) => {
                self.refusals += 1;
                if self.refusals > REFUSALS_MAX {
                    self.fail(Failure::Refused(refusal.clone()), effects);
                } else {
                    self.wait(refusal.to_string(), now, effects);
                }
            }
        }
    }

    /// The first batch after a jump of the source's log start begins here: that tells who moved it.
    pub fn first_batch(&mut self, base_offset: Offset, effects: &mut Vec<Effect>) {
        if let Some((_, start)) = self.jump {
            let reason = match base_offset < start {
                true => LossReason::DeleteRecords,
                false => LossReason::Retention,
            };
            self.settle_jump(reason, effects);
        }
    }

    fn settle_jump(&mut self, reason: LossReason, effects: &mut Vec<Effect>) {
        if let Some((first, next)) = self.jump.take() {
            effects.push(Effect::Loss(Loss { first, next, reason }));
        }
    }

    /// A Fetch told the source's watermarks.
    pub fn watermarks(
        &mut self,
        high_watermark: Offset,
        log_start: Offset,
        effects: &mut Vec<Effect>,
    ) {
        self.high_watermark = high_watermark;
        if log_start > self.position.start {
            self.position.start = log_start.min(self.position.end);
            effects.push(Effect::RaiseLogStart);
        }
    }

    /// The source refused a request for this partition.
    pub fn refused(&mut self, error: ErrorCode, now: Now, effects: &mut Vec<Effect>) {
        if matches!(self.phase, Phase::Failed | Phase::DiskFailed) {
            return;
        }
        if error == ErrorCode::OFFSET_OUT_OF_RANGE && self.phase == Phase::Mirroring {
            effects.push(Effect::StopFetching);
            self.enter(Phase::Locating);
            effects.push(Effect::Locate);
            return;
        }
        if error == ErrorCode::UNKNOWN_LEADER_EPOCH || error.retriable() {
            effects.push(Effect::Refresh);
        }
        self.wait(format!("the source answered {error}"), now, effects);
    }

    /// The disk refused something: nothing more is taken until the log was opened again, since only
    /// recovery knows what the disk holds.
    pub fn disk_failed(&mut self, reason: String, now: Now, effects: &mut Vec<Effect>) {
        if self.phase == Phase::Failed {
            return;
        }
        effects.push(Effect::StopFetching);
        if self.reason.as_ref() != Some(&reason) || self.phase != Phase::DiskFailed {
            effects.push(Effect::DiskFailed(reason.clone()));
        }
        self.enter(Phase::DiskFailed);
        self.retry_later(reason, now);
    }

    /// The log was opened again and stands here.
    pub fn reopened(&mut self, position: LogPosition, effects: &mut Vec<Effect>) {
        if self.phase == Phase::DiskFailed {
            self.position = position;
            self.begin(effects);
        }
    }

    /// The topic at the source is gone or another one.
    pub fn source_changed(&mut self, failure: Failure, effects: &mut Vec<Effect>) {
        self.fail(failure, effects);
    }

    /// Time has come: begins again where it waited for that.
    pub fn on_time(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.retry_at.is_none_or(|at| at > now) {
            return;
        }
        match self.phase {
            Phase::Waiting => self.begin(effects),
            Phase::DiskFailed => {
                self.retry_at = None;
                effects.push(Effect::Reopen);
            }
            _ => {}
        }
    }

    fn fetch(&mut self, effects: &mut Vec<Effect>) {
        self.enter(Phase::Mirroring);
        self.reason = None;
        let LogPosition { end: offset, last_epoch: last_fetched_epoch, .. } = self.position;
        effects.push(Effect::Fetch { offset, last_fetched_epoch });
    }

    fn wait(&mut self, reason: String, now: Now, effects: &mut Vec<Effect>) {
        if matches!(self.phase, Phase::Failed | Phase::DiskFailed) {
            return;
        }
        effects.push(Effect::StopFetching);
        self.enter(Phase::Waiting);
        self.retry_later(reason, now);
    }

    fn retry_later(&mut self, reason: String, now: Now) {
        self.reason = Some(reason);
        let delay = RETRY_LEAST.saturating_mul(1 << self.attempts.min(16)).min(RETRY_MOST);
        self.attempts = self.attempts.saturating_add(1);
        self.retry_at = Some(now.plus(delay));
    }

    fn fail(&mut self, failure: Failure, effects: &mut Vec<Effect>) {
        if self.phase == Phase::Failed {
            return;
        }
        self.settle_jump(LossReason::LogStartMoved, effects);
        self.enter(Phase::Failed);
        self.source_is_gone = failure == Failure::SourceDeleted;
        self.retry_at = None;
        self.reason = Some(failure.to_string());
        effects.push(Effect::StopFetching);
        effects.push(Effect::Failed(failure));
    }

    fn enter(&mut self, phase: Phase) {
        assert!(self.phase.next().contains(&phase), "from {} to {phase}", self.phase);
        self.phase = phase;
    }
}
