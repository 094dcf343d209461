//! DescribeCluster: the brokers of a cluster, as admin tools ask for them.

use alloc::string::String;
use alloc::vec::Vec;

use super::ErrorCode;
use super::metadata::OPERATIONS_UNKNOWN;
use crate::ids::BrokerId;
use crate::message::{message, structure};

/// The endpoints asked for are those of brokers.
pub const ENDPOINT_BROKERS: i8 = 1;
/// The endpoints asked for are those of controllers.
pub const ENDPOINT_CONTROLLERS: i8 = 2;

message! {
    pub struct DescribeClusterRequest: DESCRIBE_CLUSTER 0..=2, flexible 0.. {
        include_cluster_authorized_operations: bool [0..],
        endpoint_type: i8 [1.., default ENDPOINT_BROKERS],
        include_fenced_brokers: bool [2..],
    }
}

message! {
    pub struct DescribeClusterResponse: DESCRIBE_CLUSTER 0..=2, flexible 0.. {
        throttle_time_ms: i32 [0..],
        error_code: ErrorCode [0..],
        error_message: Option<String> [0..],
        endpoint_type: i8 [1.., default ENDPOINT_BROKERS],
        cluster_id: String [0..],
        controller_id: BrokerId [0.., default BrokerId::NONE],
        brokers: Vec<DescribeClusterBroker> [0..],
        cluster_authorized_operations: i32 [0.., default OPERATIONS_UNKNOWN],
    }
}

structure! {
    pub struct DescribeClusterBroker {
        broker_id: BrokerId [0..],
        host: String [0..],
        port: i32 [0..],
        rack: Option<String> [0..],
        is_fenced: bool [2..],
    }
}
