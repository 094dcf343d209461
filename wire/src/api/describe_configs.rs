//! DescribeConfigs: the configuration of topics and brokers.

use alloc::string::String;
use alloc::vec::Vec;

use super::ErrorCode;
use crate::message::{message, structure};

/// The resource is a topic.
pub const RESOURCE_TOPIC: i8 = 2;
/// The resource is a broker.
pub const RESOURCE_BROKER: i8 = 4;

/// The value was set on the topic.
pub const SOURCE_TOPIC: i8 = 1;
/// The value is the default that Kafka was built with.
pub const SOURCE_DEFAULT: i8 = 5;

message! {
    pub struct DescribeConfigsRequest: DESCRIBE_CONFIGS 1..=4, flexible 4.. {
        resources: Vec<DescribeConfigsResource> [1..],
        include_synonyms: bool [1..],
        include_documentation: bool [3..],
    }
}

structure! {
    pub struct DescribeConfigsResource {
        resource_type: i8 [1..],
        resource_name: String [1..],
        /// Null means every key.
        configuration_keys: Option<Vec<String>> [1..],
    }
}

message! {
    pub struct DescribeConfigsResponse: DESCRIBE_CONFIGS 1..=4, flexible 4.. {
        throttle_time_ms: i32 [1..],
        results: Vec<DescribeConfigsResult> [1..],
    }
}

structure! {
    pub struct DescribeConfigsResult {
        error_code: ErrorCode [1..],
        error_message: Option<String> [1..],
        resource_type: i8 [1..],
        resource_name: String [1..],
        configs: Vec<DescribeConfigsResourceResult> [1..],
    }
}

structure! {
    pub struct DescribeConfigsResourceResult {
        name: String [1..],
        /// Null where the value is secret or there is none.
        value: Option<String> [1..],
        read_only: bool [1..],
        /// Where the value comes from, as in the constants above; -1 where it is unknown.
        config_source: i8 [1.., default -1],
        is_sensitive: bool [1..],
        synonyms: Vec<DescribeConfigsSynonym> [1..],
        config_type: i8 [3..],
        documentation: Option<String> [3..],
    }
}

structure! {
    pub struct DescribeConfigsSynonym {
        name: String [1..],
        value: Option<String> [1..],
        source: i8 [1..],
    }
}
