//! What a broker's answer says: whose records came, what has to be healed, whether the session holds.

use std::collections::BTreeSet;
use std::time::Duration;

use wire::api::{ApiKey, ErrorCode};
use wire::codec::Reader;
use wire::fetch::{FetchResponse, LeaderIdAndEpoch, NAMES_MOST};
use wire::ids::BrokerId;

use super::Fetcher;
use crate::ids::PartitionKey;
use crate::source::FetchedPartition;
use crate::source::conn::Refusal;
use crate::source::follow::{Followed, Table, Wish};

/// The longest that a broker may have us wait. One that throttles us for longer stops reading from
/// our connection by itself; one that is broken must not silence a fetcher.
const THROTTLE_MAX: Duration = Duration::from_secs(60);

/// What an answer means.
#[derive(Debug)]
pub(in crate::source) struct Heard {
    /// For the mirrors.
    pub(in crate::source) partitions: Vec<FetchedPartition>,
    /// For the link to heal.
    pub(in crate::source) troubles: Vec<Trouble>,
    pub(in crate::source) endpoints: Vec<Endpoint>,
    pub(in crate::source) throttle: Duration,
}

/// A partition that has to be fetched elsewhere, or later.
#[derive(Debug)]
pub(in crate::source) struct Trouble {
    pub(in crate::source) key: PartitionKey,
    pub(in crate::source) error: ErrorCode,
    pub(in crate::source) leader: Option<LeaderIdAndEpoch>,
}

/// Where a broker listens, as another one told.
#[derive(Debug)]
pub(in crate::source) struct Endpoint {
    pub(in crate::source) broker: BrokerId,
    pub(in crate::source) host: String,
    pub(in crate::source) port: u16,
}

impl Fetcher {
    /// Takes an answer apart. Nothing has changed where it is refused.
    pub(in crate::source) fn heard(
        &mut self,
        frame: &[u8],
        body: Reader<'_>,
        version: i16,
        table: &mut Table,
    ) -> Result<Heard, Refusal> {
        let api = ApiKey::FETCH;
        let bytes = |error| Refusal::Bytes { api, version, error };
        let mut walk = FetchResponse::open(frame, body.position(), version).map_err(bytes)?;
        let head = walk.head();
        let throttle = Duration::from_millis(u64::try_from(head.throttle_time_ms).unwrap_or(0));
        let mut heard = Heard {
            partitions: Vec::new(),
            troubles: Vec::new(),
            endpoints: Vec::new(),
            throttle: throttle.min(THROTTLE_MAX),
        };
        while let Some(topic) = walk.topic(frame).map_err(bytes)? {
            let partitions = table.topic(topic, version > NAMES_MOST);
            while let Some(told) = walk.partition(frame).map_err(bytes)? {
                let key = partitions.and_then(|keys| keys.get(&told.partition_index).copied());
                let Some((key, followed)) = key.and_then(|key| Some((key, table.get(key)?))) else {
                    continue;
                };
                if followed.fetcher == Some(self.key) && followed.is_asked_for() {
                    sort_out(&mut heard, key, followed, &told);
                }
            }
        }
        for told in walk.tail(frame).map_err(bytes)?.node_endpoints {
            if let Ok(port @ 1..) = u16::try_from(told.port) {
                let host = told.host.to_string();
                heard.endpoints.push(Endpoint { broker: told.node_id, host, port });
            }
        }
        // Others than the leaders that were named are none of our business.
        let leaders: BTreeSet<BrokerId> =
            heard.troubles.iter().filter_map(|t| Some(t.leader?.leader_id)).collect();
        heard.endpoints.retain(|endpoint| leaders.contains(&endpoint.broker));
        self.keep_session(ErrorCode(head.error_code), head.session_id, version)?;
        self.settle(table, &mut heard);
        Ok(heard)
    }

    /// What the answer means for the session.
    fn keep_session(
        &mut self,
        error: ErrorCode,
        session_id: i32,
        version: i16,
    ) -> Result<(), Refusal> {
        match error {
            ErrorCode::NONE => self.refused_sessions = 0,
            ErrorCode::FETCH_SESSION_ID_NOT_FOUND
            | ErrorCode::INVALID_FETCH_SESSION_EPOCH
            | ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR
            | ErrorCode::UNKNOWN_TOPIC_ID
            | ErrorCode::INCONSISTENT_TOPIC_ID => {
                let gone = error == ErrorCode::FETCH_SESSION_ID_NOT_FOUND;
                self.restart(if gone { 0 } else { self.session_id });
                self.refused_sessions = self.refused_sessions.saturating_add(1);
                return Ok(());
            }
            error => return Err(Refusal::Error { api: ApiKey::FETCH, version, error }),
        }
        if session_id == 0 {
            // The broker keeps no session for us: every request is a whole one, until it does.
            self.restart(0);
        } else if self.session_epoch == 0 || session_id == self.session_id {
            self.session_id = session_id;
            self.session_epoch = self.session_epoch.checked_add(1).unwrap_or(1);
        } else {
            self.restart(session_id);
        }
        Ok(())
    }

    /// Marks what was answered. A partition named twice counts once.
    fn settle(&mut self, table: &mut Table, heard: &mut Heard) {
        heard.partitions.retain(|fetched| {
            let followed = table.get_mut(fetched.key).expect("it was found a moment ago");
            if !followed.is_asked_for() {
                return false;
            }
            followed.failures = 0;
            if fetched.is_answer() {
                followed.wish = Wish::Answered;
                self.fetching -= 1;
                self.answered.push(fetched.key);
            }
            true
        });
        let inconsistent = |trouble: &Trouble| trouble.error == ErrorCode::INCONSISTENT_TOPIC_ID;
        if heard.troubles.iter().any(inconsistent) {
            self.restart(self.session_id);
        }
    }
}

impl FetchedPartition {
    /// Whether this ends the partition's stay in the session until it is renewed.
    pub(in crate::source) fn is_answer(&self) -> bool {
        !self.error.is_none() || self.diverging.is_some() || !self.records.is_empty()
    }
}

/// Whether the link heals this error by moving to the leader, or by waiting for it.
fn is_healed_by_the_link(error: ErrorCode) -> bool {
    matches!(
        error,
        ErrorCode::NOT_LEADER_OR_FOLLOWER
            | ErrorCode::FENCED_LEADER_EPOCH
            | ErrorCode::UNKNOWN_LEADER_EPOCH
            | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode::UNKNOWN_TOPIC_ID
            | ErrorCode::INCONSISTENT_TOPIC_ID
            | ErrorCode::LEADER_NOT_AVAILABLE
            | ErrorCode::REPLICA_NOT_AVAILABLE
            | ErrorCode::OFFSET_NOT_AVAILABLE
            | ErrorCode::NETWORK_EXCEPTION
            | ErrorCode::REQUEST_TIMED_OUT
    )
}

fn sort_out(
    heard: &mut Heard,
    key: PartitionKey,
    followed: &Followed,
    told: &wire::fetch::FetchedPartition<'_>,
) {
    let error = ErrorCode(told.error_code);
    if is_healed_by_the_link(error) {
        heard.troubles.push(Trouble { key, error, leader: told.current_leader });
        return;
    }
    heard.partitions.push(FetchedPartition {
        key,
        error,
        high_watermark: told.high_watermark,
        last_stable_offset: told.last_stable_offset,
        log_start_offset: told.log_start_offset,
        diverging: told.diverging_epoch.map(|diverging| (diverging.epoch, diverging.end_offset)),
        records: if error.is_none() { told.records.clone() } else { 0..0 },
        offset: followed.at.offset,
        leader_epoch: followed.at.leader_epoch,
    });
}
