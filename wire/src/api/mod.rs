//! The Kafka messages spoken here, one file per API, and what all of them share: keys and versions.
//!
//! Every message has `read` and `write`, because each of them is needed from both ends: the mirror asks
//! the source, consumers ask the mirror, and a synthetic source answers in tests. Fetch is not here:
//! it is read without a copy, in `crate::fetch`.

pub mod api_versions;
pub mod describe_cluster;
pub mod describe_configs;
pub mod describe_topic_partitions;
pub mod error_code;
pub mod find_coordinator;
pub mod init_producer_id;
pub mod list_offsets;
pub mod metadata;
pub mod offset_for_leader_epoch;
pub mod produce;

use core::fmt;

pub use error_code::ErrorCode;

/// The versions of every API whose messages are read and written here.
pub const SPOKEN: [(ApiKey, Versions); 10] = [
    (ApiKey::PRODUCE, produce::ProduceRequest::VERSIONS),
    (ApiKey::LIST_OFFSETS, list_offsets::ListOffsetsRequest::VERSIONS),
    (ApiKey::METADATA, metadata::MetadataRequest::VERSIONS),
    (ApiKey::FIND_COORDINATOR, find_coordinator::FindCoordinatorRequest::VERSIONS),
    (ApiKey::API_VERSIONS, api_versions::ApiVersionsRequest::VERSIONS),
    (ApiKey::INIT_PRODUCER_ID, init_producer_id::InitProducerIdRequest::VERSIONS),
    (
        ApiKey::OFFSET_FOR_LEADER_EPOCH,
        offset_for_leader_epoch::OffsetForLeaderEpochRequest::VERSIONS,
    ),
    (ApiKey::DESCRIBE_CONFIGS, describe_configs::DescribeConfigsRequest::VERSIONS),
    (ApiKey::DESCRIBE_CLUSTER, describe_cluster::DescribeClusterRequest::VERSIONS),
    (
        ApiKey::DESCRIBE_TOPIC_PARTITIONS,
        describe_topic_partitions::DescribeTopicPartitionsRequest::VERSIONS,
    ),
];

/// A range of versions of one API, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    pub least: i16,
    pub most: i16,
}

impl Versions {
    /// Whether `version` is one of them.
    #[must_use]
    pub const fn contains(self, version: i16) -> bool {
        self.least <= version && version <= self.most
    }

    /// The versions that both ends of a connection speak; `None` where there is no such version.
    #[must_use]
    pub fn common(self, other: Self) -> Option<Self> {
        let least = self.least.max(other.least);
        let most = self.most.min(other.most);
        (least <= most).then_some(Self { least, most })
    }

    /// Every version, lowest first.
    pub fn each(self) -> impl Iterator<Item = i16> {
        self.least..=self.most
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.least, self.most)
    }
}

/// Which API a request calls, by Kafka's number. Printed as Kafka's name.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApiKey(pub i16);

crate::message::number_fields! {
    ApiKey: i16;
}

impl ApiKey {
    /// Whether requests of this version carry tagged fields, in the header as in the body. The
    /// header of an API nobody knows is read as the plain one.
    #[must_use]
    pub fn is_flexible(self, version: i16) -> bool {
        self.known().and_then(|known| known.first_flexible).is_some_and(|first| version >= first)
    }

    /// The name Kafka gives this API, where it is one of Kafka 4.4's or was removed before.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        self.known().map(|known| known.name)
    }

    /// The versions of [`SPOKEN`].
    #[must_use]
    pub fn spoken(self) -> Option<Versions> {
        SPOKEN.iter().find(|(key, _)| *key == self).map(|(_, versions)| *versions)
    }

    fn known(self) -> Option<&'static Known> {
        KNOWN.get(usize::try_from(self.0).ok()?)
    }
}

impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "api {}", self.0),
        }
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKey({} {})", self.0, self.name().unwrap_or("unknown"))
    }
}

struct Known {
    #[cfg_attr(not(test), expect(dead_code, reason = "says that the table has no gap"))]
    key: i16,
    name: &'static str,
    first_flexible: Option<i16>,
}

macro_rules! api_keys {
    ($($constant:ident = $key:literal, $name:literal, $(flexible $first:literal..)? $(never $never:ident)?;)*) => {
        impl ApiKey {
            $( pub const $constant: Self = Self($key); )*
        }

        /// In the order of the keys, without a gap.
        const KNOWN: &[Known] = &[$( Known {
            key: $key,
            name: $name,
            first_flexible: api_keys!(@first $($first)?),
        }, )*];
    };
    (@first $first:literal) => { Some($first) };
    (@first) => { None };
}

// Keys 4 to 7 left Kafka with version 4.0; old source clusters still name them.
api_keys! {
    PRODUCE = 0, "Produce", flexible 9..;
    FETCH = 1, "Fetch", flexible 12..;
    LIST_OFFSETS = 2, "ListOffsets", flexible 6..;
    METADATA = 3, "Metadata", flexible 9..;
    LEADER_AND_ISR = 4, "LeaderAndIsr", flexible 4..;
    STOP_REPLICA = 5, "StopReplica", flexible 2..;
    UPDATE_METADATA = 6, "UpdateMetadata", flexible 6..;
    CONTROLLED_SHUTDOWN = 7, "ControlledShutdown", flexible 3..;
    OFFSET_COMMIT = 8, "OffsetCommit", flexible 8..;
    OFFSET_FETCH = 9, "OffsetFetch", flexible 6..;
    FIND_COORDINATOR = 10, "FindCoordinator", flexible 3..;
    JOIN_GROUP = 11, "JoinGroup", flexible 6..;
    HEARTBEAT = 12, "Heartbeat", flexible 4..;
    LEAVE_GROUP = 13, "LeaveGroup", flexible 4..;
    SYNC_GROUP = 14, "SyncGroup", flexible 4..;
    DESCRIBE_GROUPS = 15, "DescribeGroups", flexible 5..;
    LIST_GROUPS = 16, "ListGroups", flexible 3..;
    SASL_HANDSHAKE = 17, "SaslHandshake", never flexible;
    API_VERSIONS = 18, "ApiVersions", flexible 3..;
    CREATE_TOPICS = 19, "CreateTopics", flexible 5..;
    DELETE_TOPICS = 20, "DeleteTopics", flexible 4..;
    DELETE_RECORDS = 21, "DeleteRecords", flexible 2..;
    INIT_PRODUCER_ID = 22, "InitProducerId", flexible 2..;
    OFFSET_FOR_LEADER_EPOCH = 23, "OffsetForLeaderEpoch", flexible 4..;
    ADD_PARTITIONS_TO_TXN = 24, "AddPartitionsToTxn", flexible 3..;
    ADD_OFFSETS_TO_TXN = 25, "AddOffsetsToTxn", flexible 3..;
    END_TXN = 26, "EndTxn", flexible 3..;
    WRITE_TXN_MARKERS = 27, "WriteTxnMarkers", flexible 1..;
    TXN_OFFSET_COMMIT = 28, "TxnOffsetCommit", flexible 3..;
    DESCRIBE_ACLS = 29, "DescribeAcls", flexible 2..;
    CREATE_ACLS = 30, "CreateAcls", flexible 2..;
    DELETE_ACLS = 31, "DeleteAcls", flexible 2..;
    DESCRIBE_CONFIGS = 32, "DescribeConfigs", flexible 4..;
    ALTER_CONFIGS = 33, "AlterConfigs", flexible 2..;
    ALTER_REPLICA_LOG_DIRS = 34, "AlterReplicaLogDirs", flexible 2..;
    DESCRIBE_LOG_DIRS = 35, "DescribeLogDirs", flexible 2..;
    SASL_AUTHENTICATE = 36, "SaslAuthenticate", flexible 2..;
    CREATE_PARTITIONS = 37, "CreatePartitions", flexible 2..;
    CREATE_DELEGATION_TOKEN = 38, "CreateDelegationToken", flexible 2..;
    RENEW_DELEGATION_TOKEN = 39, "RenewDelegationToken", flexible 2..;
    EXPIRE_DELEGATION_TOKEN = 40, "ExpireDelegationToken", flexible 2..;
    DESCRIBE_DELEGATION_TOKEN = 41, "DescribeDelegationToken", flexible 2..;
    DELETE_GROUPS = 42, "DeleteGroups", flexible 2..;
    ELECT_LEADERS = 43, "ElectLeaders", flexible 2..;
    INCREMENTAL_ALTER_CONFIGS = 44, "IncrementalAlterConfigs", flexible 1..;
    ALTER_PARTITION_REASSIGNMENTS = 45, "AlterPartitionReassignments", flexible 0..;
    LIST_PARTITION_REASSIGNMENTS = 46, "ListPartitionReassignments", flexible 0..;
    OFFSET_DELETE = 47, "OffsetDelete", never flexible;
    DESCRIBE_CLIENT_QUOTAS = 48, "DescribeClientQuotas", flexible 1..;
    ALTER_CLIENT_QUOTAS = 49, "AlterClientQuotas", flexible 1..;
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50, "DescribeUserScramCredentials", flexible 0..;
    ALTER_USER_SCRAM_CREDENTIALS = 51, "AlterUserScramCredentials", flexible 0..;
    VOTE = 52, "Vote", flexible 0..;
    BEGIN_QUORUM_EPOCH = 53, "BeginQuorumEpoch", flexible 1..;
    END_QUORUM_EPOCH = 54, "EndQuorumEpoch", flexible 1..;
    DESCRIBE_QUORUM = 55, "DescribeQuorum", flexible 0..;
    ALTER_PARTITION = 56, "AlterPartition", flexible 0..;
    UPDATE_FEATURES = 57, "UpdateFeatures", flexible 0..;
    ENVELOPE = 58, "Envelope", flexible 0..;
    FETCH_SNAPSHOT = 59, "FetchSnapshot", flexible 0..;
    DESCRIBE_CLUSTER = 60, "DescribeCluster", flexible 0..;
    DESCRIBE_PRODUCERS = 61, "DescribeProducers", flexible 0..;
    BROKER_REGISTRATION = 62, "BrokerRegistration", flexible 0..;
    BROKER_HEARTBEAT = 63, "BrokerHeartbeat", flexible 0..;
    UNREGISTER_BROKER = 64, "UnregisterBroker", flexible 0..;
    DESCRIBE_TRANSACTIONS = 65, "DescribeTransactions", flexible 0..;
    LIST_TRANSACTIONS = 66, "ListTransactions", flexible 0..;
    ALLOCATE_PRODUCER_IDS = 67, "AllocateProducerIds", flexible 0..;
    CONSUMER_GROUP_HEARTBEAT = 68, "ConsumerGroupHeartbeat", flexible 0..;
    CONSUMER_GROUP_DESCRIBE = 69, "ConsumerGroupDescribe", flexible 0..;
    CONTROLLER_REGISTRATION = 70, "ControllerRegistration", flexible 0..;
    GET_TELEMETRY_SUBSCRIPTIONS = 71, "GetTelemetrySubscriptions", flexible 0..;
    PUSH_TELEMETRY = 72, "PushTelemetry", flexible 0..;
    ASSIGN_REPLICAS_TO_DIRS = 73, "AssignReplicasToDirs", flexible 0..;
    LIST_CONFIG_RESOURCES = 74, "ListConfigResources", flexible 0..;
    DESCRIBE_TOPIC_PARTITIONS = 75, "DescribeTopicPartitions", flexible 0..;
    SHARE_GROUP_HEARTBEAT = 76, "ShareGroupHeartbeat", flexible 0..;
    SHARE_GROUP_DESCRIBE = 77, "ShareGroupDescribe", flexible 0..;
    SHARE_FETCH = 78, "ShareFetch", flexible 0..;
    SHARE_ACKNOWLEDGE = 79, "ShareAcknowledge", flexible 0..;
    ADD_RAFT_VOTER = 80, "AddRaftVoter", flexible 0..;
    REMOVE_RAFT_VOTER = 81, "RemoveRaftVoter", flexible 0..;
    UPDATE_RAFT_VOTER = 82, "UpdateRaftVoter", flexible 0..;
    INITIALIZE_SHARE_GROUP_STATE = 83, "InitializeShareGroupState", flexible 0..;
    READ_SHARE_GROUP_STATE = 84, "ReadShareGroupState", flexible 0..;
    WRITE_SHARE_GROUP_STATE = 85, "WriteShareGroupState", flexible 0..;
    DELETE_SHARE_GROUP_STATE = 86, "DeleteShareGroupState", flexible 0..;
    READ_SHARE_GROUP_STATE_SUMMARY = 87, "ReadShareGroupStateSummary", flexible 0..;
    STREAMS_GROUP_HEARTBEAT = 88, "StreamsGroupHeartbeat", flexible 0..;
    STREAMS_GROUP_DESCRIBE = 89, "StreamsGroupDescribe", flexible 0..;
    DESCRIBE_SHARE_GROUP_OFFSETS = 90, "DescribeShareGroupOffsets", flexible 0..;
    ALTER_SHARE_GROUP_OFFSETS = 91, "AlterShareGroupOffsets", flexible 0..;
    DELETE_SHARE_GROUP_OFFSETS = 92, "DeleteShareGroupOffsets", flexible 0..;
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93, "StreamsGroupTopologyDescriptionUpdate", flexible 0..;
    UNREGISTER_CONTROLLER = 94, "UnregisterController", flexible 0..;
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn every_key_stands_at_its_place() {
        for (key, known) in (0..).zip(KNOWN) {
            assert_eq!(known.key, key, "{}", known.name);
        }
    }

    #[test]
    fn both_ends_speak_the_overlap_of_what_each_speaks() {
        let ours = Versions { least: 1, most: 11 };
        let overlap = |least, most| ours.common(Versions { least, most });
        assert_eq!(overlap(0, 4), Some(Versions { least: 1, most: 4 }));
        assert_eq!(overlap(11, 20), Some(Versions { least: 11, most: 11 }));
        assert_eq!(overlap(12, 20), None);
        assert_eq!(overlap(0, 0), None);
    }

    #[test]
    fn prints_kafkas_name_or_the_bare_key() {
        assert_eq!(ApiKey::LIST_OFFSETS.to_string(), "ListOffsets");
        assert_eq!(ApiKey(-3).to_string(), "api -3");
        assert_eq!(ApiKey(999).to_string(), "api 999");
    }
}
