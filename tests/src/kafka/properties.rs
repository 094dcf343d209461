//! The settings of brokers under test: small, quick to elect, and on loopback only.
use std::collections::BTreeMap;

pub(super) type Properties = BTreeMap<String, String>;

/// One broker among its peers.
pub(super) struct Node<'a> {
    pub id: usize,
    pub address: &'a str,
    pub data: &'a str,
    pub quorum: Quorum<'a>,
    pub brokers: usize,
}

/// Who keeps the cluster's metadata.
pub(super) enum Quorum<'a> {
    /// The address of this node's controller, if it has one, and `id@address,...` of all.
    Kraft {
        controller: Option<&'a str>,
        voters: &'a str,
    },
    ZooKeeper {
        address: &'a str,
    },
}

/// The file of one node; `overrides` win.
pub(super) fn server(node: &Node<'_>, overrides: &[(String, String)]) -> Properties {
    let mut properties = shared(node.brokers);
    let mut set = |name: &str, value: String| {
        properties.insert(name.to_owned(), value);
    };
    set("log.dirs", node.data.to_owned());
    let plain = format!("PLAINTEXT://{}", node.address);
    set("advertised.listeners", plain.clone());
    match node.quorum {
        Quorum::Kraft { controller, voters } => {
            set("node.id", node.id.to_string());
            set("controller.quorum.voters", voters.to_owned());
            set("controller.listener.names", "CONTROLLER".to_owned());
            // A broker that was killed may not come back before its session is over.
            set("broker.session.timeout.ms", "3000".to_owned());
            set("broker.heartbeat.interval.ms", "500".to_owned());
            if let Some(controller) = controller {
                set("process.roles", "broker,controller".to_owned());
                set("listeners", format!("{plain},CONTROLLER://{controller}"));
            } else {
                set("process.roles", "broker".to_owned());
                set("listeners", plain);
            }
        }
        Quorum::ZooKeeper { address } => {
            set("broker.id", node.id.to_string());
            set("listeners", plain);
            set("zookeeper.connect", address.to_owned());
            set("zookeeper.session.timeout.ms", "3000".to_owned());
        }
    }
    properties.extend(overrides.iter().cloned());
    properties
}

/// A ZooKeeper of one, for brokers of old.
pub(super) fn zookeeper(port: u16, data: &str) -> Properties {
    let pairs = [
        ("dataDir", data.to_owned()),
        ("clientPort", port.to_string()),
        ("clientPortAddress", "127.0.0.1".to_owned()),
        ("admin.enableServer", "false".to_owned()),
        ("maxClientCnxns", "0".to_owned()),
        // Sessions end after two ticks at the least: a killed broker is forgotten soon.
        ("tickTime", "1000".to_owned()),
        // `dump` tells whether a killed broker has been forgotten.
        ("4lw.commands.whitelist", "dump".to_owned()),
    ];
    pairs.map(|(name, value)| (name.to_owned(), value)).into()
}

fn shared(brokers: usize) -> Properties {
    let replicas = brokers.to_string();
    let in_sync = brokers.min(2).to_string();
    let pairs = [
        ("offsets.topic.replication.factor", replicas.as_str()),
        ("transaction.state.log.replication.factor", &replicas),
        ("transaction.state.log.min.isr", &in_sync),
        ("share.coordinator.state.topic.replication.factor", &replicas),
        ("share.coordinator.state.topic.min.isr", &in_sync),
        ("offsets.topic.num.partitions", "4"),
        ("transaction.state.log.num.partitions", "4"),
        ("group.initial.rebalance.delay.ms", "0"),
        // A misspelt topic is an error and not a new topic.
        ("auto.create.topics.enable", "false"),
        ("num.network.threads", "2"),
        ("num.io.threads", "4"),
        ("log.cleaner.dedupe.buffer.size", "16777216"),
        ("log.cleaner.backoff.ms", "500"),
    ];
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// As Java reads them; backslashes are escapes there.
pub(super) fn text(properties: &Properties) -> String {
    let line =
        |(name, value): (&String, &String)| format!("{name}={}\n", value.replace('\\', "\\\\"));
    properties.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_test_asks_for_wins_over_what_the_harness_sets() {
        let quorum = Quorum::ZooKeeper { address: "127.0.0.1:1" };
        let node = Node { id: 1, address: "127.0.0.1:2", data: "/d", quorum, brokers: 1 };
        let wanted = ("num.io.threads".to_owned(), "9".to_owned());
        assert_eq!(server(&node, &[wanted])["num.io.threads"], "9");
    }
}
