//! Metrics over HTTP in Prometheus' format, and whether the node is well.

use std::fmt::Write as _;
use std::net::TcpListener;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::metrics::{Kind, ShardMetrics, TABLE};

/// Serves `/metrics` and `/health` on the desk's runtime.
pub(super) fn serve(listener: TcpListener, metrics: Vec<Arc<ShardMetrics>>) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let router = Router::new()
        .route("/metrics", get(show_metrics))
        .route("/health", get(show_health))
        .with_state(Arc::new(metrics));
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!("metrics are shown no longer: {error}");
        }
    });
    Ok(())
}

type Metrics = Arc<Vec<Arc<ShardMetrics>>>;

async fn show_metrics(State(metrics): State<Metrics>) -> Response {
    let format = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, format)], exposition(&metrics)).into_response()
}

async fn show_health(State(metrics): State<Metrics>) -> Response {
    health(&metrics).into_response()
}

/// Well means that nothing waits for a person. The body says what is wrong.
fn health(metrics: &[Arc<ShardMetrics>]) -> (StatusCode, String) {
    let sum = |read: fn(&ShardMetrics) -> u64| metrics.iter().map(|shard| read(shard)).sum::<u64>();
    let failed = sum(|shard| shard.partitions_failed.value());
    let is_lost = sum(|shard| shard.source_lost.value()) > 0;
    let mut wrong = String::new();
    if failed > 0 {
        let _ = writeln!(wrong, "{failed} partitions have failed: the log names them");
    }
    if is_lost {
        wrong.push_str("no broker of the source can be used: the log says why\n");
    }
    if wrong.is_empty() {
        let partitions = sum(|shard| shard.partitions.value());
        return (StatusCode::OK, format!("well, {partitions} partitions\n"));
    }
    (StatusCode::SERVICE_UNAVAILABLE, wrong)
}

/// All metrics of all shards. The format is plain text with three kinds of lines, written here
/// because the numbers are read where they stand, without a registry in between.
fn exposition(metrics: &[Arc<ShardMetrics>]) -> String {
    let mut text = String::new();
    for metric in TABLE {
        let (suffix, kind) = match metric.kind {
            Kind::Counter => ("_total", "counter"),
            Kind::Gauge => ("", "gauge"),
        };
        let name = metric.name;
        let _ = writeln!(text, "# HELP {name}{suffix} {}", metric.help);
        let _ = writeln!(text, "# TYPE {name}{suffix} {kind}");
        for (shard, numbers) in metrics.iter().enumerate() {
            let value = (metric.read)(numbers);
            let _ = writeln!(text, "{name}{suffix}{{shard=\"{shard}\"}} {value}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_a_person_is_said() {
        let shards = [Arc::new(ShardMetrics::default()), Arc::new(ShardMetrics::default())];
        shards[1].partitions.set(7);
        assert_eq!(health(&shards), (StatusCode::OK, "well, 7 partitions\n".into()));
        shards[0].source_lost.set(1);
        let (status, body) = health(&shards);
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(body, "no broker of the source can be used: the log says why\n");
        shards[1].partitions_failed.set(2);
        assert!(health(&shards).1.starts_with("2 partitions have failed"));
    }

    #[test]
    fn each_shard_s_number_is_a_line_under_its_help() {
        let shards = vec![Arc::new(ShardMetrics::default()), Arc::new(ShardMetrics::default())];
        shards[1].losses.add(2);
        let text = exposition(&shards);
        assert!(text.contains("# TYPE farspan_losses_total counter\n"));
        assert!(text.contains("farspan_losses_total{shard=\"0\"} 0\n"));
        assert!(text.contains("farspan_losses_total{shard=\"1\"} 2\n"));
    }
}
