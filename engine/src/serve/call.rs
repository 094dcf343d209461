//! A request that waits for answers of owners, whichever API it is.

use wire::api::{ApiKey, ErrorCode};
use wire::frame::frame_response;

use super::fetch::FetchCall;
use super::list_offsets::ListOffsetsCall;
use super::offset_for_leader_epoch::EndOfEpochCall;
use super::{Answer, Asked};

/// Which request is answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplyTo {
    pub(super) api_key: ApiKey,
    pub(super) version: i16,
    pub(super) correlation_id: i32,
}

impl ReplyTo {
    pub(super) fn frame(self, body: impl FnOnce(&mut wire::codec::Writer)) -> Vec<u8> {
        frame_response(self.api_key, self.version, self.correlation_id, body)
    }
}

/// The request that a connection waits for.
#[derive(Debug)]
pub(super) struct Working {
    pub(super) number: u64,
    pub(super) to: ReplyTo,
    pub(super) call: Call,
}

#[derive(Debug)]
pub(super) enum Call {
    Fetch(FetchCall),
    ListOffsets(ListOffsetsCall),
    EndOfEpoch(EndOfEpochCall),
}

impl Working {
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + match &self.call {
                Call::Fetch(call) => call.memory_bytes(),
                Call::ListOffsets(call) => call.memory_bytes(),
                Call::EndOfEpoch(call) => call.memory_bytes(),
            }
    }
}

/// Where the answers of a call belong that is complete when all of them are there.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// By index of the question: topic and partition in the response; `None` once it is filled.
    places: Vec<Option<(u32, u32)>>,
    open: usize,
}

impl Slots {
    /// The index of the next question, whose answer belongs at `place`.
    pub(super) fn add(&mut self, topic: usize, partition: usize) -> u32 {
        let narrow = |index| u32::try_from(index).expect("a request has fewer than 2^32 parts");
        self.places.push(Some((narrow(topic), narrow(partition))));
        self.open += 1;
        narrow(self.places.len() - 1)
    }

    /// Where the answer to this question belongs; `None` for one that was answered before.
    pub(super) fn take(&mut self, index: u32) -> Option<(usize, usize)> {
        let (topic, partition) = self.places.get_mut(index as usize)?.take()?;
        self.open -= 1;
        Some((topic as usize, partition as usize))
    }

    pub(super) fn is_complete(&self) -> bool {
        self.open == 0
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.places.capacity() * size_of::<Option<(u32, u32)>>()
    }
}

/// The code for an answer to another question than was asked: a bug of ours that the client should
/// not have to die of.
pub(super) fn mismatch(answer: &Answer, asked: &str) -> ErrorCode {
    debug_assert!(false, "{asked} was asked and {answer:?} answered");
    ErrorCode::UNKNOWN_SERVER_ERROR
}

/// A question as it goes out.
pub(super) type Questions = Vec<Asked>;
