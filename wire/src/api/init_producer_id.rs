//! InitProducerId: what an idempotent producer asks before its first Produce.

use alloc::string::String;

use super::ErrorCode;
use crate::ids::{ProducerEpoch, ProducerId};
use crate::message::message;

message! {
    /// Version 6 (two-phase commit) is unstable in Kafka 4.4 and not spoken here.
    pub struct InitProducerIdRequest: INIT_PRODUCER_ID 0..=5, flexible 2.. {
        transactional_id: Option<String> [0..],
        transaction_timeout_ms: i32 [0..],
        producer_id: ProducerId [3.., default ProducerId::NONE],
        producer_epoch: ProducerEpoch [3.., default ProducerEpoch(-1)],
    }
}

message! {
    pub struct InitProducerIdResponse: INIT_PRODUCER_ID 0..=5, flexible 2.. {
        throttle_time_ms: i32 [0..],
        error_code: ErrorCode [0..],
        producer_id: ProducerId [0.., default ProducerId::NONE],
        producer_epoch: ProducerEpoch [0..],
    }
}
