//! One connection to a broker: what is said first, in which versions, and which answer belongs to
//! which request.
//!
//! ```text
//! Connection -> (Tls) -> ApiVersions -> (SaslHandshake -> SaslAuthenticate) -> Answers
//! ```
//!
//! What stands in brackets is not spoken yet; it would be states of [`Expects`] between the others.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use wire::api::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use wire::api::list_offsets::ListOffsetsRequest;
use wire::api::metadata::MetadataRequest;
use wire::api::offset_for_leader_epoch::OffsetForLeaderEpochRequest;
use wire::api::{ApiKey, ErrorCode, Versions};
use wire::codec::{Reader, Writer};
use wire::error::WireError;
use wire::frame::{frame_request, read_response_header};

use super::lookup::AskedFor;

/// Version of the first ApiVersions request: understood since Kafka 2.4, refused politely before.
const FIRST_ASKED: i16 = 3;

/// From Kafka 2.1 on, metadata tells leader epochs. Older brokers cannot be mirrored safely.
const METADATA: Versions = Versions { least: 7, most: MetadataRequest::VERSIONS.most };
/// From Kafka 2.1 on, answers tell leader epochs.
const LIST_OFFSETS: Versions = Versions { least: 4, most: ListOffsetsRequest::VERSIONS.most };
/// From Kafka 2.1 on, requests say which epoch the asker believes in.
const OFFSET_FOR_LEADER_EPOCH: Versions =
    Versions { least: 2, most: OffsetForLeaderEpochRequest::VERSIONS.most };
/// From Kafka 2.1 on, requests say which epoch the asker believes in, and zstd is served.
const FETCH: Versions = Versions { least: 10, most: *wire::fetch::VERSIONS.end() };

/// The versions in which a broker and we speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spoken {
    pub(super) metadata: i16,
    pub(super) list_offsets: i16,
    pub(super) offset_for_leader_epoch: i16,
    pub(super) fetch: i16,
}

/// What the next bytes from the broker must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expects {
    /// None: the connection is not yet open.
    Connection,
    /// The versions that the broker speaks, asked for in this version.
    ApiVersions(i16),
    /// Answers to requests, in their order.
    Answers,
}

/// What a request was about.
#[derive(Debug)]
pub(super) enum About {
    ApiVersions,
    Fetch,
    Metadata { full: bool },
    Lookups(Vec<AskedFor>),
}

/// What a frame means for whoever owns the connection.
#[derive(Debug)]
pub(super) enum Heard<'a> {
    /// Say this next.
    Say(Vec<u8>),
    /// Requests may be sent.
    Ready,
    /// The answer to a request; `body` stands behind the header and counts from the frame's start.
    Answer { about: About, version: i16, body: Reader<'a> },
}

/// Why a broker is not spoken with any further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// An answer that is not what it claims to be.
    Bytes { api: ApiKey, version: i16, error: WireError },
    /// An answer to nothing that was asked.
    Unasked,
    /// Answers must come in the order of requests.
    Correlation { api: ApiKey, version: i16, expected: i32, found: i32 },
    /// An API that the broker does not speak in any version that we speak.
    Versions { api: ApiKey, ours: Versions, theirs: Option<Versions> },
    /// An error for the request as a whole.
    Error { api: ApiKey, version: i16, error: ErrorCode },
    /// An answer that makes no sense.
    Nonsense { api: ApiKey, version: i16, reason: String },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes { api, version, error } => {
                write!(f, "answered {api} version {version} with bytes that are none: {error}")
            }
            Self::Unasked => f.write_str("sent an answer to nothing that was asked"),
            Self::Correlation { api, version, expected, found } => write!(
                f,
                "answered request {found} where {api} version {version} waits for request {expected}"
            ),
            Self::Versions { api, ours, theirs: Some(theirs) } => {
                write!(f, "speaks {api} in versions {theirs}, we need one of {ours}")
            }
            Self::Versions { api, ours, theirs: None } => {
                write!(f, "does not speak {api}, we need one of versions {ours}")
            }
            Self::Error { api, version, error } => {
                write!(f, "answered {api} version {version} with {error}")
            }
            Self::Nonsense { api, version, reason } => {
                write!(f, "answered {api} version {version}: {reason}")
            }
        }
    }
}

/// One connection, from the attempt to open it to its end.
#[derive(Debug)]
pub(super) struct Conn {
    client_id: Arc<str>,
    expects: Expects,
    correlation_id: i32,
    waiting: VecDeque<Waiting>,
    spoken: Spoken,
}

#[derive(Debug)]
struct Waiting {
    correlation_id: i32,
    api: ApiKey,
    version: i16,
    about: About,
}

impl Conn {
    pub(super) fn new(client_id: Arc<str>) -> Self {
        Self {
            client_id,
            expects: Expects::Connection,
            correlation_id: 0,
            waiting: VecDeque::new(),
            spoken: Spoken::default(),
        }
    }

    /// The connection is open: what to say first, or nothing where it was open already.
    pub(super) fn connected(&mut self) -> Option<Vec<u8>> {
        (self.expects == Expects::Connection).then(|| self.ask_versions(FIRST_ASKED))
    }

    pub(super) fn is_connected(&self) -> bool {
        self.expects != Expects::Connection
    }

    /// Whether requests may be sent.
    pub(super) fn is_ready(&self) -> bool {
        self.expects == Expects::Answers
    }

    /// Whether answers are awaited.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) const fn spoken(&self) -> Spoken {
        self.spoken
    }

    /// What was asked and will not be answered.
    pub(super) fn into_unanswered(self) -> impl Iterator<Item = About> {
        self.waiting.into_iter().map(|waiting| waiting.about)
    }

    /// A whole request.
    pub(super) fn ask(
        &mut self,
        api: ApiKey,
        version: i16,
        about: About,
        body: impl FnOnce(&mut Writer),
    ) -> Vec<u8> {
        self.correlation_id = self.correlation_id.wrapping_add(1) & i32::MAX;
        let correlation_id = self.correlation_id;
        self.waiting.push_back(Waiting { correlation_id, api, version, about });
        frame_request(api, version, correlation_id, Some(&self.client_id), body)
    }

    /// Version and body of the answer to a Fetch that begins with `head`, where the next frame to
    /// come is one.
    pub(super) fn fetch_answer<'a>(&self, head: &'a [u8]) -> Option<(i16, Reader<'a>)> {
        let waiting = self.waiting.front()?;
        let mut body = Reader::new(head);
        read_response_header(&mut body, waiting.api, waiting.version).ok()?;
        matches!(waiting.about, About::Fetch).then_some((waiting.version, body))
    }

    /// A frame has come.
    pub(super) fn heard<'a>(&mut self, frame: &'a [u8]) -> Result<Heard<'a>, Refusal> {
        let waiting = self.waiting.pop_front().ok_or(Refusal::Unasked)?;
        let Waiting { correlation_id: expected, api, version, about } = waiting;
        let mut body = Reader::new(frame);
        let bytes = |error| Refusal::Bytes { api, version, error };
        let found = read_response_header(&mut body, api, version).map_err(bytes)?;
        if found != expected {
            return Err(Refusal::Correlation { api, version, expected, found });
        }
        match self.expects {
            Expects::ApiVersions(_) => self.versions(body, version),
            Expects::Connection | Expects::Answers => Ok(Heard::Answer { about, version, body }),
        }
    }

    fn ask_versions(&mut self, version: i16) -> Vec<u8> {
        self.expects = Expects::ApiVersions(version);
        let request = ApiVersionsRequest {
            client_software_name: "farspan".to_string(),
            client_software_version: env!("CARGO_PKG_VERSION").to_string(),
            ..Default::default()
        };
        self.ask(ApiKey::API_VERSIONS, version, About::ApiVersions, |writer| {
            request.write(writer, version);
        })
    }

    fn versions<'a>(&mut self, body: Reader<'a>, version: i16) -> Result<Heard<'a>, Refusal> {
        let api = ApiKey::API_VERSIONS;
        let bytes = |error| Refusal::Bytes { api, version, error };
        let error = ErrorCode(body.clone().i16().map_err(bytes)?);
        if error == ErrorCode::UNSUPPORTED_VERSION {
            return self.fall_back(body, version);
        }
        if !error.is_none() {
            return Err(Refusal::Error { api, version, error });
        }
        let mut reader = body;
        let answer = ApiVersionsResponse::read(&mut reader, version).map_err(bytes)?;
        reader.finish().map_err(bytes)?;
        self.spoken = Spoken {
            metadata: common(&answer, ApiKey::METADATA, METADATA)?,
            list_offsets: common(&answer, ApiKey::LIST_OFFSETS, LIST_OFFSETS)?,
            offset_for_leader_epoch: common(
                &answer,
                ApiKey::OFFSET_FOR_LEADER_EPOCH,
                OFFSET_FOR_LEADER_EPOCH,
            )?,
            fetch: common(&answer, ApiKey::FETCH, FETCH)?,
        };
        self.expects = Expects::Answers;
        Ok(Heard::Ready)
    }

    /// A broker that does not speak the version asked says so in version 0, and (since Kafka 2.4)
    /// which versions it speaks.
    fn fall_back<'a>(&mut self, body: Reader<'_>, asked: i16) -> Result<Heard<'a>, Refusal> {
        let api = ApiKey::API_VERSIONS;
        if asked == 0 {
            let error = ErrorCode::UNSUPPORTED_VERSION;
            return Err(Refusal::Error { api, version: asked, error });
        }
        let mut reader = body;
        let answer = ApiVersionsResponse::read(&mut reader, 0).map_err(|error| Refusal::Bytes {
            api,
            version: 0,
            error,
        })?;
        let named = answer.versions(api).map_or(0, |versions| versions.most);
        let next = if (0..asked).contains(&named) { named } else { 0 };
        Ok(Heard::Say(self.ask_versions(next)))
    }
}

/// The newest version of an API that both ends speak.
fn common(answer: &ApiVersionsResponse, api: ApiKey, ours: Versions) -> Result<i16, Refusal> {
    let theirs = answer.versions(api);
    let common = theirs.and_then(|theirs| ours.common(theirs));
    common.map(|common| common.most).ok_or(Refusal::Versions { api, ours, theirs })
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::api::api_versions::ApiVersion;
    use wire::frame::{RequestHeader, SIZE_BYTES, frame_response};

    fn header(request: &[u8]) -> RequestHeader {
        RequestHeader::read(&mut Reader::new(&request[SIZE_BYTES..])).unwrap()
    }

    fn answer(version: i16, correlation_id: i32, answer: &ApiVersionsResponse) -> Vec<u8> {
        let frame = frame_response(ApiKey::API_VERSIONS, version, correlation_id, |writer| {
            answer.write(writer, version);
        });
        frame[SIZE_BYTES..].to_vec()
    }

    fn speaking(apis: &[(ApiKey, i16, i16)]) -> ApiVersionsResponse {
        let api =
            |&(api_key, min_version, max_version)| ApiVersion { api_key, min_version, max_version };
        ApiVersionsResponse { api_keys: apis.iter().map(api).collect(), ..Default::default() }
    }

    const KAFKA_2_1: [(ApiKey, i16, i16); 5] = [
        (ApiKey::FETCH, 0, 10),
        (ApiKey::LIST_OFFSETS, 0, 4),
        (ApiKey::METADATA, 0, 7),
        (ApiKey::API_VERSIONS, 0, 2),
        (ApiKey::OFFSET_FOR_LEADER_EPOCH, 0, 2),
    ];

    #[test]
    fn an_old_broker_is_asked_again_in_a_version_it_speaks() {
        for (named, next) in [(vec![], 0), (vec![(ApiKey::API_VERSIONS, 0, 2)], 2)] {
            let mut conn = Conn::new("farspan".into());
            let first = header(&conn.connected().unwrap());
            assert_eq!((first.api_key, first.api_version), (ApiKey::API_VERSIONS, 3));
            let mut refusal = speaking(&named);
            refusal.error_code = ErrorCode::UNSUPPORTED_VERSION;
            let frame = answer(0, first.correlation_id, &refusal);
            let Ok(Heard::Say(again)) = conn.heard(&frame) else { panic!("falls back") };
            let second = header(&again);
            assert_eq!(second.api_version, next);
            let frame = answer(next, second.correlation_id, &speaking(&KAFKA_2_1));
            assert!(matches!(conn.heard(&frame), Ok(Heard::Ready)));
            let spoken =
                Spoken { metadata: 7, list_offsets: 4, offset_for_leader_epoch: 2, fetch: 10 };
            assert_eq!(conn.spoken(), spoken);
        }
    }

    #[test]
    fn a_broker_that_is_too_old_is_told_so() {
        let mut conn = Conn::new("farspan".into());
        let first = header(&conn.connected().unwrap());
        let mut apis = KAFKA_2_1;
        apis[2].2 = 6;
        let frame = answer(3, first.correlation_id, &speaking(&apis));
        let refusal = conn.heard(&frame).unwrap_err();
        assert_eq!(refusal.to_string(), "speaks Metadata in versions 0-6, we need one of 7-13");
    }

    #[test]
    fn broken_and_misplaced_answers_name_api_version_and_place() {
        let mut conn = Conn::new("farspan".into());
        let first = header(&conn.connected().unwrap());
        let frame = answer(3, first.correlation_id + 1, &speaking(&KAFKA_2_1));
        assert_eq!(
            conn.heard(&frame).unwrap_err().to_string(),
            "answered request 2 where ApiVersions version 3 waits for request 1"
        );
        assert_eq!(conn.heard(&frame).unwrap_err(), Refusal::Unasked);

        let mut conn = Conn::new("farspan".into());
        conn.connected();
        assert_eq!(
            conn.heard(&[0, 0, 0, 1, 0, 0, 200, 1]).unwrap_err().to_string(),
            "answered ApiVersions version 3 with bytes that are none: \
             199 elements announced, 0 bytes left at byte 6"
        );
    }
}
