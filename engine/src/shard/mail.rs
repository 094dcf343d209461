//! Messages between shards, and from shards to the desk: bounded, and never lost. What a full box
//! does not take waits with the sender, whose own queue is bounded by the calls it has under way.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_queue::ArrayQueue;
use wire::ids::{LeaderEpoch, Offset};

use crate::catalog::Topic;
use crate::ids::{ShardId, TopicPartition};
use crate::io::Waker;
use crate::limits;
use crate::mirror::Loss;
use crate::serve::{Answer, Asked, CallId, QuestionId, Watched};
use crate::source::{SourceImage, Ticket};

/// What shards and the desk write to a shard.
#[derive(Debug)]
pub enum Letter {
    /// The source's metadata, from the shard that follows it.
    Image(Arc<SourceImage>),
    /// Topics that are new here or have grown, before their partitions are asked for.
    Topics(Vec<Arc<Topic>>),
    /// Somebody saw that the metadata is old.
    RefreshWanted { topics: Vec<Arc<str>>, ticket: Ticket },
    /// Questions of a client of another shard about partitions that this one owns.
    Ask { from: ShardId, questions: Vec<Asked> },
    /// Their answers.
    Answers { answers: Vec<(QuestionId, Answer)> },
    /// Tell when one of these partitions has more to read.
    Watch { from: ShardId, partitions: Vec<Watched> },
    /// Never mind.
    Unwatch { from: ShardId, call: CallId },
    /// A partition that was watched has more to read.
    Progress { id: QuestionId },
    /// The addresses of a host, from the desk.
    Resolved { host: Arc<str>, addresses: Result<Vec<IpAddr>, String> },
    /// What became of a [`DeskLetter::Loss`].
    LossRecorded { partition: TopicPartition, loss: Loss, result: Result<(), String> },
    /// These files are gone or others now: let go of what is open under their names.
    Forget { files: Arc<[Arc<Path>]> },
    /// Finish writing, close every log, and end.
    Stop,
}

/// What shards write to the desk.
#[derive(Debug)]
pub enum DeskLetter {
    /// Where partitions of this shard stand; only those that moved.
    Checkpoint { partitions: Vec<PartitionCheckpoint> },
    /// Offsets that the source no longer had: answered by [`Letter::LossRecorded`].
    Loss { shard: ShardId, partition: TopicPartition, loss: Loss, wall_clock_ms: i64 },
    /// Find the addresses of a host.
    Resolve { shard: ShardId, host: Arc<str> },
    /// The shard has closed its logs; `clean` where all of them were flushed.
    Stopped { shard: ShardId, clean: bool },
}

/// What the checkpoint files say of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionCheckpoint {
    pub partition: TopicPartition,
    /// Everything before this offset is on disk whatever happens.
    pub recovery_point: Offset,
    /// Only where it is not the first offset of a segment, which a segment's name says already.
    pub log_start: Option<Offset>,
    pub high_watermark: Offset,
    /// The leader epoch that clients were told, so that it does not fall over a restart.
    pub leader_epoch: LeaderEpoch,
}

/// A box that many write to and one empties.
#[derive(Debug)]
pub struct Mailbox<T> {
    queue: ArrayQueue<T>,
    /// Whether the owner is awake and will look anyway: then waking it would cost for nothing.
    noticed: AtomicBool,
}

impl<T> Mailbox<T> {
    /// An empty box.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self { queue: ArrayQueue::new(limits::MAIL_MAX), noticed: AtomicBool::new(false) })
    }

    /// The next letter. Before an empty box lets its owner sleep it is looked into once more, so a
    /// letter that came meanwhile is not missed.
    pub fn take(&self) -> Option<T> {
        self.queue.pop().or_else(|| {
            self.noticed.store(false, Ordering::SeqCst);
            self.queue.pop()
        })
    }
}

/// The way to one box.
#[derive(Debug)]
pub struct Slot<T> {
    mailbox: Arc<Mailbox<T>>,
    waker: Waker,
    waiting: VecDeque<T>,
}

impl<T> Slot<T> {
    /// A way to `mailbox`, whose owner `waker` wakes.
    #[must_use]
    pub fn new(mailbox: Arc<Mailbox<T>>, waker: Waker) -> Self {
        Self { mailbox, waker, waiting: VecDeque::new() }
    }

    /// Sends a letter after those sent before.
    pub fn send(&mut self, letter: T) {
        self.waiting.push_back(letter);
        self.flush();
    }

    /// Hands over what the box has room for; says whether something still waits.
    pub fn flush(&mut self) -> bool {
        let mut delivered = false;
        while let Some(letter) = self.waiting.pop_front() {
            if let Err(letter) = self.mailbox.queue.push(letter) {
                self.waiting.push_front(letter);
                break;
            }
            delivered = true;
        }
        if delivered && !self.mailbox.noticed.swap(true, Ordering::SeqCst) {
            self.waker.wake();
        }
        !self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn letters_beyond_the_box_wait_with_the_sender_in_their_order() {
        let mailbox = Mailbox::new();
        let wakes = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&wakes);
        let waker = Waker::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let mut slot = Slot::new(Arc::clone(&mailbox), waker);
        let count = limits::MAIL_MAX + 10;
        for number in 0..count {
            slot.send(number);
        }
        assert_eq!(wakes.load(Ordering::Relaxed), 1, "one wake is enough");
        for number in 0..count {
            if number == limits::MAIL_MAX {
                assert!(!slot.flush());
            }
            assert_eq!(mailbox.take(), Some(number));
        }
        assert_eq!(mailbox.take(), None);
        slot.send(7);
        assert_eq!(wakes.load(Ordering::Relaxed), 2);
    }
}
