//! InitProducerId: an id for whoever asks, so that his Produce can be refused with a reason.

use wire::api::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use wire::api::{ErrorCode, Versions};
use wire::ids::{ProducerEpoch, ProducerId};

use super::route::{Handled, Refusal, Request};

pub(super) const SERVED: Versions = Versions { least: 0, most: 5 };

/// Kafka's producers are idempotent unless they are told otherwise, and ask for an id before they
/// send. This response has no room for a message: a refusal here would tell them of rights that they
/// lack, where the Produce that follows tells them that the topic is a mirror. The id is the one of
/// the call, unique in this process; it never enters a log. A transactional producer would go on to
/// ask for a coordinator, which there is none of: it gets the code after which Kafka's client and
/// librdkafka give up for good.
pub(super) fn handle(mut request: Request<'_>) -> Result<Handled, Refusal> {
    let version = request.version();
    let asked = InitProducerIdRequest::read(&mut request.body, version)?;
    let response = match asked.transactional_id {
        Some(_) => InitProducerIdResponse {
            error_code: ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            ..InitProducerIdResponse::default()
        },
        None => InitProducerIdResponse {
            producer_id: producer_id(&request),
            producer_epoch: ProducerEpoch(0),
            ..InitProducerIdResponse::default()
        },
    };
    request.reply(|writer| response.write(writer, version))
}

/// Calls are counted in each shard; the shards take turns in the numbers.
fn producer_id(request: &Request<'_>) -> ProducerId {
    let options = request.options;
    let number = request.call.number.wrapping_mul(u64::from(options.shard_count.max(1)));
    let id = number.wrapping_add(u64::from(options.shard.0)) & i64::MAX.cast_unsigned();
    ProducerId(id.cast_signed())
}
