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

/// Well means that no partition waits for a person. The body says what is wrong.
async fn show_health(State(metrics): State<Metrics>) -> Response {
    let failed: u64 = metrics.iter().map(|shard| shard.partitions_failed.value()).sum();
    match failed {
        0 => (StatusCode::OK, "well\n").into_response(),
        _ => (StatusCode::SERVICE_UNAVAILABLE, format!("{failed} partitions have failed\n"))
            .into_response(),
    }
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
    fn each_shard_s_number_is_a_line_under_its_help() {
        let shards = vec![Arc::new(ShardMetrics::default()), Arc::new(ShardMetrics::default())];
        shards[1].losses.add(2);
        let text = exposition(&shards);
        assert!(text.contains("# TYPE farspan_losses_total counter\n"));
        assert!(text.contains("farspan_losses_total{shard=\"0\"} 0\n"));
        assert!(text.contains("farspan_losses_total{shard=\"1\"} 2\n"));
    }
}
