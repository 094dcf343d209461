use super::*;
use wire::api::metadata::MetadataResponseBroker;

const ID_A: TopicId = TopicId([1; 16]);
const ID_B: TopicId = TopicId([2; 16]);

/// Name, id, and leader and epoch of each partition.
type Told<'a> = (&'a str, TopicId, &'a [(i32, i32)]);

fn answer(topics: &[Told<'_>]) -> MetadataResponse {
    let topic = |&(name, topic_id, leaders): &Told<'_>| {
        let partitions =
            (0..).zip(leaders).map(|(index, &(leader, epoch))| MetadataResponsePartition {
                partition_index: PartitionIndex(index),
                leader_id: BrokerId(leader),
                leader_epoch: LeaderEpoch(epoch),
                ..Default::default()
            });
        let name = Some(name.to_string());
        let partitions = partitions.collect();
        MetadataResponseTopic { name, topic_id, partitions, ..Default::default() }
    };
    MetadataResponse {
        brokers: vec![MetadataResponseBroker {
            node_id: BrokerId(1),
            host: "one".to_string(),
            port: 9092,
            rack: None,
        }],
        cluster_id: Some("c1".to_string()),
        topics: topics.iter().map(topic).collect(),
        ..Default::default()
    }
}

struct World {
    atlas: Atlas,
    image: Arc<SourceImage>,
    ask: Vec<Arc<str>>,
}

impl World {
    fn new() -> Self {
        let image = Arc::new(SourceImage::default());
        Self { atlas: Atlas::default(), image, ask: Vec::new() }
    }

    fn hear(&mut self, answer: &MetadataResponse, full: bool) -> bool {
        let filter = TopicFilter::default();
        let surveyed = self.atlas.survey(&self.image, answer, full, &filter).unwrap();
        self.ask = surveyed.ask;
        match surveyed.image {
            Some(image) => {
                self.image = image;
                true
            }
            None => false,
        }
    }

    fn leader(&self, topic: &str, partition: usize) -> (i32, i32) {
        let leadership = self.image.topics[topic].partitions[partition];
        (leadership.leader.0, leadership.epoch.0)
    }
}

#[test]
fn a_leader_epoch_never_goes_back_for_the_same_topic_id() {
    let mut world = World::new();
    assert!(world.hear(&answer(&[("t", ID_A, &[(1, 5), (2, 5)])]), true));
    assert!(world.hear(&answer(&[("t", ID_A, &[(3, 4), (3, 6)])]), true));
    assert_eq!([world.leader("t", 0), world.leader("t", 1)], [(1, 5), (3, 6)]);
    // Fewer partitions than before is a broker that lags behind.
    assert!(!world.hear(&answer(&[("t", ID_A, &[(1, 5)])]), true));
}

#[test]
fn a_topic_created_again_is_seen_by_its_id_and_the_old_one_does_not_return() {
    let mut world = World::new();
    world.hear(&answer(&[("t", ID_A, &[(1, 5), (1, 5)])]), true);
    world.hear(&answer(&[("t", ID_B, &[(2, 0)])]), true);
    assert_eq!(world.image.topics["t"].id, ID_B);
    assert_eq!(world.leader("t", 0), (2, 0));
    assert!(!world.hear(&answer(&[("t", ID_A, &[(1, 5), (1, 5)])]), true));
    assert_eq!(world.image.leadership("t", ID_A, PartitionIndex(0)), None);
}

#[test]
fn one_wrong_answer_does_not_hide_a_topic_for_ever() {
    let mut world = World::new();
    let right = answer(&[("t", ID_A, &[(1, 5)])]);
    world.hear(&right, true);
    world.hear(&answer(&[("t", ID_B, &[(2, 9)])]), true);
    assert!(!world.hear(&right, true));
    assert!(!world.hear(&right, true));
    assert!(world.hear(&right, true));
    assert_eq!(world.image.topics["t"].id, ID_A);
}

#[test]
fn a_topic_without_an_id_is_taken_for_created_again_only_after_several_listings() {
    let mut world = World::new();
    world.hear(&answer(&[("t", TopicId::ZERO, &[(1, 5)])]), true);
    let again = answer(&[("t", TopicId::ZERO, &[(1, 0)])]);
    assert!(!world.hear(&again, true));
    assert!(!world.hear(&again, true));
    assert!(world.hear(&again, true));
    assert_eq!(world.leader("t", 0), (1, 0));
}

#[test]
fn a_topic_goes_when_a_full_listing_left_it_out_and_nobody_knows_its_name() {
    let mut world = World::new();
    world.hear(&answer(&[("t", ID_A, &[(1, 5)]), ("u", ID_B, &[(1, 1)])]), true);
    let mut unknown = answer(&[("t", TopicId::ZERO, &[])]);
    unknown.topics[0].error_code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    // A broker that does not know it is not yet a listing without it.
    assert!(!world.hear(&unknown, false));
    assert!(!world.hear(&answer(&[("u", ID_B, &[(1, 1)])]), true));
    assert_eq!(world.ask, ["t".into()]);
    assert!(world.hear(&unknown, false));
    assert!(!world.image.topics.contains_key("t"));
}

#[test]
fn a_topic_that_may_no_longer_be_read_stays_with_its_error() {
    let mut world = World::new();
    world.hear(&answer(&[("t", ID_A, &[(1, 5)])]), true);
    world.hear(&answer(&[]), true);
    let mut forbidden = answer(&[("t", TopicId::ZERO, &[])]);
    forbidden.topics[0].error_code = ErrorCode::TOPIC_AUTHORIZATION_FAILED;
    assert!(world.hear(&forbidden, false));
    assert_eq!(world.image.topics["t"].error, ErrorCode::TOPIC_AUTHORIZATION_FAILED);
    assert_eq!(world.leader("t", 0), (1, 5));
    assert!(world.hear(&answer(&[("t", ID_A, &[(1, 5)])]), true));
    assert_eq!(world.image.topics["t"].error, ErrorCode::NONE);
}

#[test]
fn an_unchanged_topic_is_the_same_allocation() {
    let mut world = World::new();
    world.hear(&answer(&[("t", ID_A, &[(1, 5)])]), true);
    let before = Arc::clone(&world.image.topics["t"]);
    world.hear(&answer(&[("t", ID_A, &[(1, 5)]), ("u", ID_B, &[(1, 1)])]), true);
    assert!(Arc::ptr_eq(&before, &world.image.topics["t"]));
}

#[test]
fn answers_from_elsewhere_or_out_of_shape_are_refused_whole() {
    let mut world = World::new();
    world.hear(&answer(&[("t", ID_A, &[(1, 5)])]), true);
    let filter = TopicFilter::default();
    let mut refused = |answer: MetadataResponse| {
        world.atlas.survey(&world.image, &answer, true, &filter).err().unwrap()
    };
    let mut other = answer(&[]);
    other.cluster_id = Some("c2".to_string());
    let (expected, found) = ("c1".into(), "c2".into());
    assert_eq!(refused(other), Unusable::OtherCluster { expected, found });
    let mut empty = answer(&[]);
    empty.brokers.clear();
    assert_eq!(refused(empty), Unusable::NoBrokers);
    let mut wide = answer(&[("t", ID_A, &[(1, 5)])]);
    wide.topics[0].partitions[0].partition_index = PartitionIndex(i32::MAX);
    assert_eq!(refused(wide), Unusable::Partitions { topic: "t".to_string(), index: i32::MAX });
}
