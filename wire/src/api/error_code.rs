//! Kafka's error codes, up to those of Kafka 4.4.

use core::fmt;

/// The outcome of a request or of a part of it, by Kafka's number.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode(pub i16);

crate::message::number_fields! {
    ErrorCode: i16;
}

impl ErrorCode {
    /// Whether Kafka's own clients try again after this error. Unknown codes are final.
    #[must_use]
    pub fn retriable(self) -> bool {
        self.known().is_some_and(|known| known.retriable)
    }

    /// Whether this says that all went well.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The name Kafka gives this code, where it is one of Kafka 4.4's.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        self.known().map(|known| known.name)
    }

    fn known(self) -> Option<&'static Known> {
        let place = usize::try_from(i32::from(self.0) - i32::from(KNOWN[0].code)).ok()?;
        KNOWN.get(place)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "error code {}", self.0),
        }
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ErrorCode({} {})", self.0, self.name().unwrap_or("unknown"))
    }
}

struct Known {
    code: i16,
    name: &'static str,
    retriable: bool,
}

macro_rules! error_codes {
    ($($name:ident = $code:literal $(, $retry:ident)?;)*) => {
        impl ErrorCode {
            $( pub const $name: Self = Self($code); )*
        }

        /// In the order of the codes, without a gap.
        const KNOWN: &[Known] = &[$( Known {
            code: $code,
            name: stringify!($name),
            retriable: error_codes!(@retriable $($retry)?),
        }, )*];
    };
    (@retriable retry) => {
        true
    };
    (@retriable) => {
        false
    };
}

error_codes! {
    UNKNOWN_SERVER_ERROR = -1;
    NONE = 0;
    OFFSET_OUT_OF_RANGE = 1;
    CORRUPT_MESSAGE = 2, retry;
    UNKNOWN_TOPIC_OR_PARTITION = 3, retry;
    INVALID_FETCH_SIZE = 4;
    LEADER_NOT_AVAILABLE = 5, retry;
    NOT_LEADER_OR_FOLLOWER = 6, retry;
    REQUEST_TIMED_OUT = 7, retry;
    BROKER_NOT_AVAILABLE = 8;
    REPLICA_NOT_AVAILABLE = 9, retry;
    MESSAGE_TOO_LARGE = 10;
    STALE_CONTROLLER_EPOCH = 11;
    OFFSET_METADATA_TOO_LARGE = 12;
    NETWORK_EXCEPTION = 13, retry;
    COORDINATOR_LOAD_IN_PROGRESS = 14, retry;
    COORDINATOR_NOT_AVAILABLE = 15, retry;
    NOT_COORDINATOR = 16, retry;
    INVALID_TOPIC_EXCEPTION = 17;
    RECORD_LIST_TOO_LARGE = 18;
    NOT_ENOUGH_REPLICAS = 19, retry;
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, retry;
    INVALID_REQUIRED_ACKS = 21;
    ILLEGAL_GENERATION = 22;
    INCONSISTENT_GROUP_PROTOCOL = 23;
    INVALID_GROUP_ID = 24;
    UNKNOWN_MEMBER_ID = 25;
    INVALID_SESSION_TIMEOUT = 26;
    REBALANCE_IN_PROGRESS = 27;
    INVALID_COMMIT_OFFSET_SIZE = 28;
    TOPIC_AUTHORIZATION_FAILED = 29;
    GROUP_AUTHORIZATION_FAILED = 30;
    CLUSTER_AUTHORIZATION_FAILED = 31;
    INVALID_TIMESTAMP = 32;
    UNSUPPORTED_SASL_MECHANISM = 33;
    ILLEGAL_SASL_STATE = 34;
    UNSUPPORTED_VERSION = 35;
    TOPIC_ALREADY_EXISTS = 36;
    INVALID_PARTITIONS = 37;
    INVALID_REPLICATION_FACTOR = 38;
    INVALID_REPLICA_ASSIGNMENT = 39;
    INVALID_CONFIG = 40;
    NOT_CONTROLLER = 41, retry;
    INVALID_REQUEST = 42;
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43;
    POLICY_VIOLATION = 44;
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45;
    DUPLICATE_SEQUENCE_NUMBER = 46;
    INVALID_PRODUCER_EPOCH = 47;
    INVALID_TXN_STATE = 48;
    INVALID_PRODUCER_ID_MAPPING = 49;
    INVALID_TRANSACTION_TIMEOUT = 50;
    CONCURRENT_TRANSACTIONS = 51, retry;
    TRANSACTION_COORDINATOR_FENCED = 52;
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53;
    SECURITY_DISABLED = 54;
    OPERATION_NOT_ATTEMPTED = 55;
    KAFKA_STORAGE_ERROR = 56, retry;
    LOG_DIR_NOT_FOUND = 57;
    SASL_AUTHENTICATION_FAILED = 58;
    UNKNOWN_PRODUCER_ID = 59;
    REASSIGNMENT_IN_PROGRESS = 60;
    DELEGATION_TOKEN_AUTH_DISABLED = 61;
    DELEGATION_TOKEN_NOT_FOUND = 62;
    DELEGATION_TOKEN_OWNER_MISMATCH = 63;
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64;
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65;
    DELEGATION_TOKEN_EXPIRED = 66;
    INVALID_PRINCIPAL_TYPE = 67;
    NON_EMPTY_GROUP = 68;
    GROUP_ID_NOT_FOUND = 69;
    FETCH_SESSION_ID_NOT_FOUND = 70, retry;
    INVALID_FETCH_SESSION_EPOCH = 71, retry;
    LISTENER_NOT_FOUND = 72, retry;
    TOPIC_DELETION_DISABLED = 73;
    FENCED_LEADER_EPOCH = 74, retry;
    UNKNOWN_LEADER_EPOCH = 75, retry;
    UNSUPPORTED_COMPRESSION_TYPE = 76;
    STALE_BROKER_EPOCH = 77;
    OFFSET_NOT_AVAILABLE = 78, retry;
    MEMBER_ID_REQUIRED = 79;
    PREFERRED_LEADER_NOT_AVAILABLE = 80, retry;
    GROUP_MAX_SIZE_REACHED = 81;
    FENCED_INSTANCE_ID = 82;
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, retry;
    ELECTION_NOT_NEEDED = 84, retry;
    NO_REASSIGNMENT_IN_PROGRESS = 85;
    GROUP_SUBSCRIBED_TO_TOPIC = 86;
    INVALID_RECORD = 87;
    UNSTABLE_OFFSET_COMMIT = 88, retry;
    THROTTLING_QUOTA_EXCEEDED = 89, retry;
    PRODUCER_FENCED = 90;
    RESOURCE_NOT_FOUND = 91;
    DUPLICATE_RESOURCE = 92;
    UNACCEPTABLE_CREDENTIAL = 93;
    INCONSISTENT_VOTER_SET = 94;
    INVALID_UPDATE_VERSION = 95;
    FEATURE_UPDATE_FAILED = 96;
    PRINCIPAL_DESERIALIZATION_FAILURE = 97;
    SNAPSHOT_NOT_FOUND = 98;
    POSITION_OUT_OF_RANGE = 99;
    UNKNOWN_TOPIC_ID = 100, retry;
    DUPLICATE_BROKER_REGISTRATION = 101;
    BROKER_ID_NOT_REGISTERED = 102;
    INCONSISTENT_TOPIC_ID = 103, retry;
    INCONSISTENT_CLUSTER_ID = 104;
    TRANSACTIONAL_ID_NOT_FOUND = 105;
    FETCH_SESSION_TOPIC_ID_ERROR = 106, retry;
    INELIGIBLE_REPLICA = 107;
    NEW_LEADER_ELECTED = 108;
    OFFSET_MOVED_TO_TIERED_STORAGE = 109;
    FENCED_MEMBER_EPOCH = 110;
    UNRELEASED_INSTANCE_ID = 111;
    UNSUPPORTED_ASSIGNOR = 112;
    STALE_MEMBER_EPOCH = 113;
    MISMATCHED_ENDPOINT_TYPE = 114;
    UNSUPPORTED_ENDPOINT_TYPE = 115;
    UNKNOWN_CONTROLLER_ID = 116;
    UNKNOWN_SUBSCRIPTION_ID = 117;
    TELEMETRY_TOO_LARGE = 118;
    INVALID_REGISTRATION = 119;
    TRANSACTION_ABORTABLE = 120;
    INVALID_RECORD_STATE = 121;
    SHARE_SESSION_NOT_FOUND = 122, retry;
    INVALID_SHARE_SESSION_EPOCH = 123, retry;
    FENCED_STATE_EPOCH = 124;
    INVALID_VOTER_KEY = 125;
    DUPLICATE_VOTER = 126;
    VOTER_NOT_FOUND = 127;
    INVALID_REGULAR_EXPRESSION = 128;
    REBOOTSTRAP_REQUIRED = 129;
    STREAMS_INVALID_TOPOLOGY = 130;
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131;
    STREAMS_TOPOLOGY_FENCED = 132;
    SHARE_SESSION_LIMIT_REACHED = 133, retry;
    GROUP_DELETION_FAILED = 134;
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135;
    CONTROLLER_ID_NOT_REGISTERED = 136;
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString;

    #[test]
    fn every_code_stands_at_its_place() {
        for (code, known) in (-1..).zip(KNOWN) {
            assert_eq!(known.code, code, "{}", known.name);
        }
    }

    #[test]
    fn prints_kafkas_name_or_the_bare_code() {
        assert_eq!(ErrorCode::FENCED_LEADER_EPOCH.to_string(), "FENCED_LEADER_EPOCH");
        assert_eq!(ErrorCode(-1).to_string(), "UNKNOWN_SERVER_ERROR");
        assert_eq!(ErrorCode(999).to_string(), "error code 999");
        assert_eq!(ErrorCode(i16::MIN).to_string(), "error code -32768");
        assert_eq!(format!("{:?}", ErrorCode(3)), "ErrorCode(3 UNKNOWN_TOPIC_OR_PARTITION)");
    }

    #[test]
    fn a_moved_leader_is_asked_for_again_and_a_lost_right_is_not() {
        assert!(ErrorCode::NOT_LEADER_OR_FOLLOWER.retriable());
        assert!(ErrorCode::FENCED_LEADER_EPOCH.retriable());
        assert!(!ErrorCode::TOPIC_AUTHORIZATION_FAILED.retriable());
        assert!(!ErrorCode::NONE.retriable());
        assert!(!ErrorCode(999).retriable());
    }
}
