//! The main job on real input: a stock Kafka broker is mirrored, and the bytes are the same.

use std::time::Duration;

use engine::config::Config;
use engine::node::Node;
use engine::source::{LinkOptions, TopicFilter};
use tests::kafka::joined::first_difference;
use tests::kafka::{Cluster, ClusterOptions, Installation, Workload};
use tests::process::wait_until;

fn node(cluster: &Cluster, data: &std::path::Path) -> Node {
    let mut config = Config::new(data.to_path_buf());
    config.listen = ([127, 0, 0, 1], 0).into();
    let bootstrap = cluster.bootstrap();
    let (host, port) = bootstrap.rsplit_once(':').expect("host and port");
    config.source = Some(LinkOptions {
        bootstrap: vec![(host.to_string(), port.parse().expect("a port"))],
        topics: TopicFilter::default(),
        ..LinkOptions::default()
    });
    Node::start(&config).expect("the node starts")
}

#[test]
fn a_topic_s_bytes_are_the_same_on_both_sides() {
    let installation = Installation::get("4.4.0").expect("Kafka");
    let cluster = Cluster::start(&installation, ClusterOptions::default()).expect("a broker");
    let workload = Workload::start(&installation).expect("the workload tool");
    let bootstrap = cluster.bootstrap();
    let source = workload.at(&bootstrap);
    source.create("orders", 3, &[]).expect("created");
    let options = [("--records", "30000"), ("--size", "200")];
    source.produce("orders", &options).expect("produced");
    let data = tempfile::tempdir().expect("a folder");
    let node = node(&cluster, data.path());
    wait_until("the mirror has caught up", Duration::from_secs(30), || {
        let caught_up = node.sum(|shard| shard.lag_records.value()) == 0
            && node.sum(|shard| shard.admitted_bytes.value()) > 0
            && node.sum(|shard| shard.partitions_mirroring.value()) == 3;
        caught_up.then_some(())
    })
    .expect("caught up");
    for partition in 0..3 {
        let theirs = cluster.partition_dir(1, "orders", partition);
        let ours = data.path().join(format!("orders-{partition}"));
        let difference = first_difference(&theirs, &ours, 0).expect("readable");
        assert!(difference.is_none(), "{difference:?}");
    }

    node.stop().expect("a clean stop");
}
