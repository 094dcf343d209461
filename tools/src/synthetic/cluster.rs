//! The state of the synthetic cluster and the commands that change it.

use std::collections::BTreeMap;

use wire::ids::{BrokerId, PartitionIndex, TopicId};

use super::batch::Random;
use super::endless::{Endless, Growth, Ring};
use super::partition::{Log, Partition};
use super::release::Release;
use super::session::Sessions;
use super::stored::Stored;

/// Brokers and topics. Everything it does follows from its settings, the commands and the requests.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub(super) release: Release,
    pub(super) cluster_id: String,
    pub(super) brokers: BTreeMap<BrokerId, Broker>,
    pub(super) topics: BTreeMap<String, Topic>,
    pub(super) names: BTreeMap<TopicId, String>,
    pub(super) random: Random,
    pub(super) producer_ids: i64,
    replica_turn: usize,
}

/// What a cluster starts with.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub release: Release,
    /// Brokers get the ids from 1 on.
    pub broker_count: i32,
    /// Makes topic ids and session ids.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { release: Release::default(), broker_count: 3, seed: 0 }
    }
}

/// A broker.
#[derive(Clone, Debug)]
pub struct Broker {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) rack: Option<String>,
    pub(super) is_up: bool,
    pub(super) sessions: Sessions,
}

/// A topic.
#[derive(Clone, Debug)]
pub struct Topic {
    pub(super) id: TopicId,
    pub(super) partitions: Vec<Partition>,
    pub(super) configs: BTreeMap<String, String>,
}

impl Topic {
    /// Which of the topics of its name it is.
    #[must_use]
    pub const fn id(&self) -> TopicId {
        self.id
    }

    /// Its partitions, by their index.
    #[must_use]
    pub fn partitions(&self) -> &[Partition] {
        &self.partitions
    }
}

impl Cluster {
    /// A cluster without topics. Its brokers listen at `broker-<id>:9092`, until told otherwise.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let mut random = Random(settings.seed);
        let cluster_id = TopicId(next_id(&mut random)).to_string();
        let broker = |id| {
            let broker = Broker {
                host: format!("broker-{id}"),
                port: 9092,
                rack: None,
                is_up: true,
                sessions: Sessions::default(),
            };
            (BrokerId(id), broker)
        };
        Self {
            release: settings.release,
            cluster_id,
            brokers: (1..=settings.broker_count).map(broker).collect(),
            topics: BTreeMap::new(),
            names: BTreeMap::new(),
            random,
            producer_ids: 1000,
            replica_turn: 0,
        }
    }

    /// The cluster's id, as Metadata tells it.
    #[must_use]
    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// The brokers' ids.
    pub fn broker_ids(&self) -> impl Iterator<Item = BrokerId> {
        self.brokers.keys().copied()
    }

    /// The topics by name.
    pub fn topics(&self) -> impl Iterator<Item = (&str, &Topic)> {
        self.topics.iter().map(|(name, topic)| (name.as_str(), topic))
    }

    /// A topic.
    #[must_use]
    pub fn topic(&self, name: &str) -> Option<&Topic> {
        self.topics.get(name)
    }

    /// A partition, for commands.
    ///
    /// # Panics
    /// When there is no such partition.
    pub fn partition(&mut self, topic: &str, index: i32) -> &mut Partition {
        let found = self.topics.get_mut(topic).and_then(|topic| {
            usize::try_from(index).ok().and_then(|index| topic.partitions.get_mut(index))
        });
        found.unwrap_or_else(|| panic!("there is no partition {topic}-{index}"))
    }

    /// Creates a topic whose partitions are led by the brokers in turn, each with up to three
    /// replicas. A topic of that name that exists is deleted first: it is created again.
    pub fn create_topic(&mut self, name: &str, partition_count: i32) -> TopicId {
        self.create_topic_of(name, partition_count, |_| Log::Stored(Stored::default()))
    }

    /// Creates a topic of endless partitions that share a ring.
    pub fn create_endless_topic(
        &mut self,
        name: &str,
        partition_count: i32,
        ring: &Ring,
        growth: Growth,
    ) -> TopicId {
        self.create_topic_of(name, partition_count, |_| {
            Log::Endless(Endless::new(ring.clone(), growth))
        })
    }

    /// Creates a topic whose partitions' logs `log` makes.
    pub fn create_topic_of(
        &mut self,
        name: &str,
        partition_count: i32,
        mut log: impl FnMut(PartitionIndex) -> Log,
    ) -> TopicId {
        self.delete_topic(name);
        let id = TopicId(next_id(&mut self.random));
        let mut topic = Topic { id, partitions: Vec::new(), configs: BTreeMap::new() };
        for index in 0..partition_count {
            let replicas = self.next_replicas();
            topic.partitions.push(Partition::new(replicas, log(PartitionIndex(index))));
        }
        self.topics.insert(name.into(), topic);
        self.names.insert(id, name.into());
        id
    }

    /// Deletes a topic and creates it again, empty, with as many partitions and another id.
    ///
    /// # Panics
    /// When there is no such topic.
    pub fn recreate_topic(&mut self, name: &str) -> TopicId {
        let topic = self.topics.get(name).expect("the topic exists");
        let partition_count = i32::try_from(topic.partitions.len()).expect("few partitions");
        self.create_topic(name, partition_count)
    }

    /// Deletes a topic, where there is one.
    pub fn delete_topic(&mut self, name: &str) {
        if let Some(topic) = self.topics.remove(name) {
            self.names.remove(&topic.id);
        }
    }

    /// Gives a topic more partitions, all of them empty.
    ///
    /// # Panics
    /// When there is no such topic.
    pub fn add_partitions(&mut self, name: &str, total: usize) {
        while self.topics.get(name).expect("the topic exists").partitions.len() < total {
            let partition = Partition::new(self.next_replicas(), Log::Stored(Stored::default()));
            self.topics.get_mut(name).expect("the topic exists").partitions.push(partition);
        }
    }

    /// Sets a topic's configuration.
    ///
    /// # Panics
    /// When there is no such topic.
    pub fn set_config(&mut self, topic: &str, key: &str, value: &str) {
        let topic = self.topics.get_mut(topic).expect("the topic exists");
        topic.configs.insert(key.into(), value.into());
    }

    /// Moves a partition's leadership to the next of its replicas that is up.
    pub fn move_leader(&mut self, topic: &str, index: i32, now_ms: i64) -> Option<BrokerId> {
        let partition = self.partition(topic, index);
        let (leader, replicas) = (partition.leader, partition.replicas.clone());
        let place = replicas.iter().position(|replica| Some(*replica) == leader);
        let turn = place.map_or(0, |place| place + 1);
        let next = (0..replicas.len())
            .map(|step| replicas[(turn + step) % replicas.len()])
            .find(|replica| Some(*replica) != leader && self.brokers[replica].is_up)?;
        self.partition(topic, index).move_leader(next, now_ms);
        Some(next)
    }

    /// Takes a broker down: it answers nothing, and other replicas lead what it led.
    pub fn stop_broker(&mut self, id: BrokerId, now_ms: i64) {
        let broker = self.brokers.get_mut(&id).expect("the broker exists");
        broker.is_up = false;
        broker.sessions = Sessions::default();
        let led: Vec<_> = self
            .topics
            .iter()
            .flat_map(|(name, topic)| (0..).zip(&topic.partitions).map(move |each| (name, each)))
            .filter(|(_, (_, partition))| partition.leader == Some(id))
            .map(|(name, (index, _))| (name.clone(), index))
            .collect();
        for (name, index) in led {
            if self.move_leader(&name, index, now_ms).is_none() {
                self.partition(&name, index).lose_leader();
            }
        }
    }

    /// Brings a broker up again. Partitions without a leader that it holds are led by it.
    pub fn start_broker(&mut self, id: BrokerId, now_ms: i64) {
        self.brokers.get_mut(&id).expect("the broker exists").is_up = true;
        for topic in self.topics.values_mut() {
            for partition in &mut topic.partitions {
                if partition.leader.is_none() && partition.replicas.contains(&id) {
                    partition.move_leader(id, now_ms);
                }
            }
        }
    }

    /// Whether a broker answers.
    #[must_use]
    pub fn is_up(&self, id: BrokerId) -> bool {
        self.brokers.get(&id).is_some_and(|broker| broker.is_up)
    }

    /// Says where a broker listens, or where the way to it begins.
    pub fn set_address(&mut self, id: BrokerId, host: &str, port: u16) {
        let broker = self.brokers.get_mut(&id).expect("the broker exists");
        (broker.host, broker.port) = (host.into(), port);
    }

    /// Says in which rack a broker stands.
    pub fn set_rack(&mut self, id: BrokerId, rack: Option<&str>) {
        let broker = self.brokers.get_mut(&id).expect("the broker exists");
        broker.rack = rack.map(Into::into);
    }

    /// Makes a broker forget all fetch sessions, as it does when others need the room.
    pub fn evict_sessions(&mut self, id: BrokerId) {
        self.brokers.get_mut(&id).expect("the broker exists").sessions = Sessions::default();
    }

    fn next_replicas(&mut self) -> Vec<BrokerId> {
        let ids: Vec<_> = self.brokers.keys().copied().collect();
        let turn = self.replica_turn;
        self.replica_turn += 1;
        let mut replicas: Vec<_> =
            (0..ids.len().min(3)).map(|step| ids[(turn + step) % ids.len()]).collect();
        // The first one leads, so it has to be up where one is.
        replicas.sort_by_key(|id| !self.is_up(*id));
        replicas
    }
}

fn next_id(random: &mut Random) -> [u8; 16] {
    let mut id = [0; 16];
    id.copy_from_slice(&random.bytes(16));
    id
}
