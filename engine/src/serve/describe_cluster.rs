//! DescribeCluster: this node is the whole cluster.

use wire::api::describe_cluster::{
    DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse, ENDPOINT_BROKERS,
    ENDPOINT_CONTROLLERS,
};
use wire::api::metadata::OPERATIONS_UNKNOWN;
use wire::api::{ErrorCode, Versions};

use super::route::{Handled, Refusal, Request};
use super::topic::CLUSTER_OPERATIONS;

pub(super) const SERVED: Versions = Versions { least: 0, most: 2 };

pub(super) fn handle(mut request: Request<'_>) -> Result<Handled, Refusal> {
    let version = request.version();
    let asked = DescribeClusterRequest::read(&mut request.body, version)?;
    let catalog = request.catalog;
    let response = match asked.endpoint_type {
        ENDPOINT_BROKERS => DescribeClusterResponse {
            cluster_id: catalog.cluster_id.to_string(),
            controller_id: catalog.node_id,
            brokers: vec![DescribeClusterBroker {
                broker_id: catalog.node_id,
                host: catalog.host.to_string(),
                port: i32::from(catalog.port),
                rack: None,
                is_fenced: false,
            }],
            cluster_authorized_operations: if asked.include_cluster_authorized_operations {
                CLUSTER_OPERATIONS
            } else {
                OPERATIONS_UNKNOWN
            },
            ..DescribeClusterResponse::default()
        },
        ENDPOINT_CONTROLLERS => failed(
            ErrorCode::MISMATCHED_ENDPOINT_TYPE,
            "the request was sent to an endpoint of type BROKER, \
             but wants an endpoint of type CONTROLLER"
                .to_owned(),
        ),
        other => failed(
            ErrorCode::UNSUPPORTED_ENDPOINT_TYPE,
            format!("unsupported endpoint type {other}"),
        ),
    };
    request.reply(|writer| response.write(writer, version))
}

fn failed(error_code: ErrorCode, message: String) -> DescribeClusterResponse {
    DescribeClusterResponse {
        error_code,
        error_message: Some(message),
        ..DescribeClusterResponse::default()
    }
}
