//! InitProducerId: refused, since nothing may be produced here.

use wire::api::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use wire::api::{ErrorCode, Versions};

use super::route::{Handled, Refusal, Request};

pub(super) const SERVED: Versions = Versions { least: 0, most: 5 };

/// The response has no room for a message. These two codes are the ones after which Kafka's client
/// and librdkafka give up for good; after any other one librdkafka asks again for ever.
pub(super) fn handle(mut request: Request<'_>) -> Result<Handled, Refusal> {
    let version = request.version();
    let asked = InitProducerIdRequest::read(&mut request.body, version)?;
    let response = InitProducerIdResponse {
        error_code: match asked.transactional_id {
            Some(_) => ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            None => ErrorCode::CLUSTER_AUTHORIZATION_FAILED,
        },
        ..InitProducerIdResponse::default()
    };
    request.reply(|writer| response.write(writer, version))
}
