//! The table of APIs served, and the way of a request to the one it calls.

use wire::WireError;
use wire::api::{ApiKey, Versions};
use wire::codec::{Reader, Writer};
use wire::frame::RequestHeader;

use super::call::{Call, Questions, ReplyTo};
use super::session::Sessions;
use super::{
    CallId, QuestionId, REQUEST_ENTRIES_MAX, ServeOptions, api_versions, describe_cluster,
    describe_configs, describe_topic_partitions, fetch, init_producer_id, list_offsets, metadata,
    offset_for_leader_epoch, produce,
};
use crate::catalog::Catalog;
use crate::ids::Now;

/// An API that is served.
pub(super) struct Served {
    pub(super) api_key: ApiKey,
    pub(super) versions: Versions,
    handle: fn(Request<'_>) -> Result<Handled, Refusal>,
}

/// Everything served, in the order of the keys.
pub(super) const SERVED: &[Served] = &[
    Served { api_key: ApiKey::PRODUCE, versions: produce::SERVED, handle: produce::handle },
    Served { api_key: ApiKey::FETCH, versions: fetch::SERVED, handle: fetch::handle },
    Served {
        api_key: ApiKey::LIST_OFFSETS,
        versions: list_offsets::SERVED,
        handle: list_offsets::handle,
    },
    Served { api_key: ApiKey::METADATA, versions: metadata::SERVED, handle: metadata::handle },
    Served {
        api_key: ApiKey::API_VERSIONS,
        versions: api_versions::SERVED,
        handle: api_versions::handle,
    },
    Served {
        api_key: ApiKey::INIT_PRODUCER_ID,
        versions: init_producer_id::SERVED,
        handle: init_producer_id::handle,
    },
    Served {
        api_key: ApiKey::OFFSET_FOR_LEADER_EPOCH,
        versions: offset_for_leader_epoch::SERVED,
        handle: offset_for_leader_epoch::handle,
    },
    Served {
        api_key: ApiKey::DESCRIBE_CONFIGS,
        versions: describe_configs::SERVED,
        handle: describe_configs::handle,
    },
    Served {
        api_key: ApiKey::DESCRIBE_CLUSTER,
        versions: describe_cluster::SERVED,
        handle: describe_cluster::handle,
    },
    Served {
        api_key: ApiKey::DESCRIBE_TOPIC_PARTITIONS,
        versions: describe_topic_partitions::SERVED,
        handle: describe_topic_partitions::handle,
    },
];

/// A request on its way to its API, and what there is to answer it from.
pub(super) struct Request<'a> {
    /// The call that it becomes where it has to wait.
    pub(super) call: CallId,
    pub(super) to: ReplyTo,
    /// Stands at the first byte of the body.
    pub(super) body: Reader<'a>,
    pub(super) catalog: &'a Catalog,
    pub(super) options: &'a ServeOptions,
    pub(super) sessions: &'a mut Sessions,
    pub(super) now: Now,
}

impl Request<'_> {
    /// The name of a question of this call.
    pub(super) fn question_id(&self, index: u32) -> QuestionId {
        QuestionId { call: self.call, index }
    }

    pub(super) fn version(&self) -> i16 {
        self.to.version
    }

    /// Answers at once.
    pub(super) fn reply(&self, body: impl FnOnce(&mut Writer)) -> Result<Handled, Refusal> {
        Ok(Handled::Reply(self.to.frame(body)))
    }
}

/// What became of a request.
pub(super) enum Handled {
    /// The whole frame of its reply.
    Reply(Vec<u8>),
    /// It waits. No questions: it can be decided at once.
    Call(Call, Questions),
}

/// Why a request ends its connection.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Its bytes are not what they claim to be.
    Malformed(WireError),
    /// What else is wrong with it.
    Other(String),
}

impl From<WireError> for Refusal {
    fn from(error: WireError) -> Self {
        Self::Malformed(error)
    }
}

/// Refuses a request that names more than one may.
pub(super) fn check_entries(count: usize) -> Result<(), Refusal> {
    if count <= REQUEST_ENTRIES_MAX {
        return Ok(());
    }
    Err(Refusal::Other(format!(
        "it names {count} things, above the limit of {REQUEST_ENTRIES_MAX}"
    )))
}

/// Hands a frame to its API, with what the shard has to answer from. What is refused is told as it
/// stands after "peer sent ...".
pub(super) fn handle(
    frame: &[u8],
    call: CallId,
    from: (&Catalog, &ServeOptions, &mut Sessions),
    now: Now,
) -> Result<(ReplyTo, Handled), String> {
    let (catalog, options, sessions) = from;
    if let Some((to, reply)) = api_versions::unsupported(frame) {
        return Ok((to, Handled::Reply(reply)));
    }
    let mut body = Reader::new(frame);
    let header = RequestHeader::read(&mut body)
        .map_err(|error| format!("a request whose header cannot be read: {error}"))?;
    let served = SERVED.iter().find(|served| served.api_key == header.api_key);
    let version = header.api_version;
    let Some(served) = served.filter(|served| served.versions.contains(version)) else {
        let spoken = served.map_or("is not served".to_owned(), |served| {
            format!("is served in versions {}", served.versions)
        });
        let name = describe(&header);
        return Err(format!("{name}, but {} {spoken}", header.api_key));
    };
    let to = ReplyTo { api_key: header.api_key, version, correlation_id: header.correlation_id };
    let request = Request { call, to, body, catalog, options, sessions, now };
    match (served.handle)(request) {
        Ok(handled) => Ok((to, handled)),
        Err(Refusal::Malformed(error)) => {
            Err(format!("{} that cannot be read: {error}", describe(&header)))
        }
        Err(Refusal::Other(reason)) => Err(format!("{}: {reason}", describe(&header))),
    }
}

/// A request for the log; a client id is shown as far as it is of use.
fn describe(header: &RequestHeader) -> String {
    let (key, version) = (header.api_key, header.api_version);
    let client_id = match header.client_id.as_deref() {
        Some(id) => format!("{:?}", id.chars().take(64).collect::<String>()),
        None => "without a name".to_owned(),
    };
    format!("{key} version {version} as client {client_id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_served_in_a_version_that_the_codec_does_not_speak() {
        for served in SERVED {
            let spoken = match served.api_key {
                ApiKey::FETCH => Versions {
                    least: *wire::fetch::VERSIONS.start(),
                    most: *wire::fetch::VERSIONS.end(),
                },
                key => key.spoken().expect("the codec knows it"),
            };
            assert_eq!(spoken.common(served.versions), Some(served.versions), "{}", served.api_key);
        }
        assert!(SERVED.is_sorted_by_key(|served| served.api_key));
    }
}
