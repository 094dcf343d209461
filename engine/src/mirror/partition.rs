//! The life of one mirrored partition: where to go on, what to do when the source says no.
//!
//! ```text
//!             log is empty                        offset out of range
//!   begin ───────────────▶ Locating ◀───────────────────────────┐
//!     │                       │ earliest, latest                │
//!     │ log has an epoch      ▼                                 │
//!     └─────▶ Aligning ──▶ Mirroring ───────────────────────────┤
//!                             ▲  the loss is on disk            │
//!                             └──────────────────── Recording ◀─┘ earliest lies past our end
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

use std::time::Duration;

use wire::api::ErrorCode;
use wire::ids::{LeaderEpoch, Offset};

use super::admit::{Admission, Expectation, Refusal};
use super::failure::{Failure, Loss, LossReason};
use super::phase::Phase;
use crate::ids::Now;

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
    /// Write this down for good; answer with [`Partition::loss_recorded`].
    RecordLoss(Loss),
    /// Ask for newer metadata.
    Refresh,
    /// Say that it has waited for a while, and for what.
    Waits(String),
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
/// After so many failures in a row, some seconds, it is told of: what mends itself has done so by then.
const WAITS_TOLD: u32 = 5;
/// How often bytes that were refused at the same offset are asked for again: damage on the way
/// here mends itself, damage in the source's log does not.
const REFUSALS_MAX: u32 = 3;

/// The source's log start has passed our end.
#[derive(Clone, Copy, Debug)]
struct Jump {
    /// Where our log ends.
    first: Offset,
    /// Where the source's begins.
    next: Offset,
    /// Whether the loss is on its way to the disk.
    is_told: bool,
}

/// One mirrored partition. Lives on the shard that owns the partition.
#[derive(Debug)]
pub struct Partition {
    phase: Phase,
    position: LogPosition,
    source_epoch: LeaderEpoch,
    high_watermark: Offset,
    retry_at: Option<Now>,
    attempts: u32,
    /// Failures of the disk since a write last succeeded: what was taken again is not yet written.
    disk_attempts: u32,
    /// The offset that was out of the source's range, where its range was asked for because of that.
    out_of_range: Option<Offset>,
    refusals: u32,
    /// What the source no longer has, while [`Phase::Recording`].
    jump: Option<Jump>,
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
            disk_attempts: 0,
            out_of_range: None,
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
        if let Some(Jump { next, .. }) = self.jump {
            let (log_is_empty, last_epoch) = (true, LeaderEpoch::UNKNOWN);
            return Expectation { next, log_is_empty, last_epoch, source_epoch: self.source_epoch };
        }
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
        self.high_watermark = self.high_watermark.max(latest);
        match (end < earliest, std::mem::take(&mut self.position.is_new)) {
            (true, true) => self.start_at(earliest, effects),
            (true, false) => self.jumped(earliest, latest, effects),
            (false, _) => self.fetch(effects),
        }
    }

    /// The log begins anew.
    fn start_at(&mut self, offset: Offset, effects: &mut Vec<Effect>) {
        effects.push(Effect::StartAt(offset));
        let (start, end, last_epoch) = (offset, offset, LeaderEpoch::UNKNOWN);
        self.position = LogPosition { start, end, last_epoch, is_new: false };
        self.fetch(effects);
    }

    /// The source's log begins after ours ends. Its first batch tells why; where it has none, nothing
    /// does.
    fn jumped(&mut self, earliest: Offset, latest: Offset, effects: &mut Vec<Effect>) {
        self.enter(Phase::Recording);
        self.jump = Some(Jump { first: self.position.end, next: earliest, is_told: false });
        if earliest == latest {
            self.tell_loss(LossReason::LogStartMoved, effects);
        } else {
            self.fetch_after_jump(effects);
        }
    }

    fn fetch_after_jump(&self, effects: &mut Vec<Effect>) {
        if let Some(Jump { next: offset, is_told: false, .. }) = self.jump {
            effects.push(Effect::Fetch { offset, last_fetched_epoch: LeaderEpoch::UNKNOWN });
        }
    }

    fn tell_loss(&mut self, reason: LossReason, effects: &mut Vec<Effect>) {
        if let Some(Jump { first, next, is_told }) = &mut self.jump
            && !std::mem::replace(is_told, true)
        {
            effects.push(Effect::RecordLoss(Loss { first: *first, next: *next, reason }));
        }
    }

    /// While [`Phase::Recording`] a Fetch brought bytes that begin with a batch at `base_offset`, or
    /// with none that could be admitted. Nothing of them is taken: they are fetched again once the
    /// log has begun anew.
    pub fn first_batch(
        &mut self,
        base_offset: Option<Offset>,
        admission: &Admission,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        let Some(Jump { next, .. }) = self.jump else { return };
        match (base_offset, &admission.refusal) {
            (Some(base_offset), _) => {
                effects.push(Effect::StopFetching);
                let reason = match base_offset < next {
                    true => LossReason::DeleteRecords,
                    false => LossReason::Retention,
                };
                self.tell_loss(reason, effects);
            }
            // It waits, and may jump at once when it begins again.
            (None, refusal) => {
                self.out_of_range = None;
                match refusal {
                    Some(refusal) => self.refused_bytes(refusal, now, effects),
                    None => self.wait(nothing_new(admission, next), now, effects),
                }
            }
        }
    }

    /// The loss was written down, or why it could not be. Only then does the log begin anew.
    pub fn loss_recorded(
        &mut self,
        loss: &Loss,
        result: Result<(), String>,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        // What was told before something else happened will be told again.
        let Some(jump) = self.jump.filter(|jump| jump.is_told) else { return };
        if (jump.first, jump.next) != (loss.first, loss.next) {
            return;
        }
        match result {
            Ok(()) => {
                (self.attempts, self.refusals) = (0, 0);
                self.start_at(jump.next, effects);
            }
            Err(reason) => {
                self.out_of_range = None;
                self.wait(format!("a loss must be written down: {reason}"), now, effects);
            }
        }
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
            // To ask for the same at once would go on for ever.
            None if admission.length == 0 => {
                self.wait(nothing_new(admission, self.position.end), now, effects);
            }
            None => self.fetch(effects),
            Some(refusal) => self.refused_bytes(refusal, now, effects),
        }
    }

    /// The source's next batch does not fit into memory.
    pub fn too_large(&mut self, bytes: usize, effects: &mut Vec<Effect>) {
        if matches!(self.phase, Phase::Mirroring | Phase::Recording) {
            self.fail(Failure::TooLarge { bytes }, effects);
        }
    }

    fn refused_bytes(&mut self, refusal: &Refusal, now: Now, effects: &mut Vec<Effect>) {
        if refusal.fault.is_stale_metadata() {
            effects.push(Effect::Refresh);
            return self.wait(refusal.to_string(), now, effects);
        }
        self.refusals += 1;
        if self.refusals > REFUSALS_MAX {
            self.fail(Failure::Refused(refusal.clone()), effects);
        } else {
            self.wait(refusal.to_string(), now, effects);
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
        let fetches = matches!(self.phase, Phase::Mirroring | Phase::Recording);
        let at = self.expectation().next;
        if error == ErrorCode::OFFSET_OUT_OF_RANGE && fetches {
            // Where the offset is within the ends that the source tells, to ask for these each time
            // would go on for ever: every other time it waits.
            self.out_of_range = (self.out_of_range != Some(at)).then_some(at);
            if self.out_of_range.is_some() {
                effects.push(Effect::StopFetching);
                self.enter(Phase::Locating);
                effects.push(Effect::Locate);
                return;
            }
        }
        if error == ErrorCode::UNKNOWN_LEADER_EPOCH || error.retriable() {
            effects.push(Effect::Refresh);
        }
        let reason = match error {
            ErrorCode::OFFSET_OUT_OF_RANGE => {
                format!("the source answered {error} for offset {at} again and again")
            }
            error => format!("the source answered {error}"),
        };
        self.wait(reason, now, effects);
    }

    /// The disk refused something: nothing more is taken until the log was opened again, since only
    /// recovery knows what the disk holds.
    pub fn disk_failed(&mut self, reason: String, now: Now, effects: &mut Vec<Effect>) {
        let is_waiting = self.phase == Phase::DiskFailed && self.retry_at.is_some();
        if self.phase == Phase::Failed || is_waiting {
            // What was under way behind the write that failed.
            return;
        }
        effects.push(Effect::StopFetching);
        if self.reason.as_ref() != Some(&reason) || self.phase != Phase::DiskFailed {
            effects.push(Effect::DiskFailed(reason.clone()));
        }
        self.enter(Phase::DiskFailed);
        self.retry_later(reason, now, self.disk_attempts);
        self.disk_attempts = self.disk_attempts.saturating_add(1);
    }

    /// Whether it has stopped for good.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.phase == Phase::Failed
    }

    /// The disk has no room yet: it is looked at again later.
    pub fn still_refused(&mut self, now: Now) {
        if self.phase == Phase::DiskFailed {
            let reason = self.reason.take().unwrap_or_default();
            self.retry_later(reason, now, self.disk_attempts);
            self.disk_attempts = self.disk_attempts.saturating_add(1);
        }
    }

    /// What was taken is written: the disk works.
    pub fn written(&mut self) {
        self.disk_attempts = 0;
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
        self.attempts = self.attempts.saturating_add(1);
        if self.attempts == WAITS_TOLD {
            effects.push(Effect::Waits(reason.clone()));
        }
        self.retry_later(reason, now, self.attempts - 1);
    }

    fn retry_later(&mut self, reason: String, now: Now, attempts: u32) {
        self.reason = Some(reason);
        let delay = RETRY_LEAST.saturating_mul(1 << attempts.min(16)).min(RETRY_MOST);
        self.retry_at = Some(now.plus(delay));
    }

    fn fail(&mut self, failure: Failure, effects: &mut Vec<Effect>) {
        if self.phase == Phase::Failed {
            return;
        }
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
        self.jump = None;
    }
}

/// What is wrong with an answer that has bytes, and none that can be taken.
fn nothing_new(admission: &Admission, asked: Offset) -> String {
    match admission.wanted {
        Some(bytes) => format!(
            "the source answered a fetch from {asked} with the beginning of a batch of {bytes} bytes"
        ),
        None => format!("the source answered a fetch from {asked} with batches below it"),
    }
}
