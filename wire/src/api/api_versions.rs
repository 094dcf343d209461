//! ApiVersions: which versions of which APIs the other end speaks, and the features of its cluster.

use alloc::string::String;
use alloc::vec::Vec;

use super::{ApiKey, ErrorCode, Versions};
use crate::ids::BrokerId;
use crate::message::{message, structure};

message! {
    /// The first request on a connection.
    pub struct ApiVersionsRequest: API_VERSIONS 0..=5, flexible 3.. {
        client_software_name: String [3..],
        client_software_version: String [3..],
        /// The cluster the client means to talk to; a broker of another one answers
        /// REBOOTSTRAP_REQUIRED.
        cluster_id: Option<String> [5..],
        /// The broker the client means to talk to.
        node_id: BrokerId [5.., default BrokerId::NONE],
    }
}

message! {
    /// A broker that does not speak the version asked answers UNSUPPORTED_VERSION in version 0,
    /// whatever was asked. Features whose least level is 0 are only told from version 4 on.
    pub struct ApiVersionsResponse: API_VERSIONS 0..=5, flexible 3.. {
        error_code: ErrorCode [0..],
        api_keys: Vec<ApiVersion> [0..],
        throttle_time_ms: i32 [1..],
        supported_features: Vec<SupportedFeature> [3.., tag 0],
        /// Which state of the finalized features this is; -1 where it is unknown.
        finalized_features_epoch: i64 [3.., default -1, tag 1],
        finalized_features: Vec<FinalizedFeature> [3.., tag 2],
        zk_migration_ready: bool [3.., tag 3],
    }
}

structure! {
    pub struct ApiVersion {
        api_key: ApiKey [0..],
        min_version: i16 [0..],
        max_version: i16 [0..],
    }
}

structure! {
    /// A feature the broker could live with, at any of these levels.
    pub struct SupportedFeature {
        name: String [3..],
        min_version: i16 [3..],
        max_version: i16 [3..],
    }
}

structure! {
    /// A feature switched on in the whole cluster.
    pub struct FinalizedFeature {
        name: String [3..],
        max_version_level: i16 [3..],
        min_version_level: i16 [3..],
    }
}

impl ApiVersionsResponse {
    /// The versions of `key` that the other end speaks; `None` where it does not know the API.
    #[must_use]
    pub fn versions(&self, key: ApiKey) -> Option<Versions> {
        let api = self.api_keys.iter().find(|api| api.api_key == key)?;
        Some(Versions { least: api.min_version, most: api.max_version })
    }
}
