//! Which versions of which APIs the releases of Kafka speak that a synthetic cluster can play.

use wire::api::{ApiKey, Versions};

/// A release of Kafka to be taken for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Release {
    /// Topics have names only, fetches know leader epochs.
    Kafka21,
    /// Topic ids in Metadata, but not in Fetch.
    Kafka28,
    /// Topic ids in Fetch, endpoints of new leaders.
    Kafka39,
    /// High watermarks in requests; old versions are gone.
    #[default]
    Kafka44,
}

/// The greatest versions of an API in 2.1, 2.8, 3.9 and 4.4; -1 where a release lacks it.
#[rustfmt::skip]
const GREATEST: [(ApiKey, [i16; 4]); 11] = [
    (ApiKey::PRODUCE,                   [ 7,  9, 11, 13]),
    (ApiKey::FETCH,                     [10, 12, 17, 18]),
    (ApiKey::LIST_OFFSETS,              [ 4,  6,  9, 11]),
    (ApiKey::METADATA,                  [ 7, 11, 12, 13]),
    (ApiKey::FIND_COORDINATOR,          [ 2,  3,  6,  6]),
    (ApiKey::API_VERSIONS,              [ 2,  3,  4,  5]),
    (ApiKey::INIT_PRODUCER_ID,          [ 1,  4,  5,  6]),
    (ApiKey::OFFSET_FOR_LEADER_EPOCH,   [ 2,  4,  4,  4]),
    (ApiKey::DESCRIBE_CONFIGS,          [ 2,  4,  4,  4]),
    (ApiKey::DESCRIBE_CLUSTER,          [-1,  0,  1,  2]),
    (ApiKey::DESCRIBE_TOPIC_PARTITIONS, [-1, -1,  0,  0]),
];

/// The least versions that Kafka 4 still speaks, where they are above 0 (KIP-896).
const LEAST_IN_4: [(ApiKey, i16); 4] = [
    (ApiKey::FETCH, 4),
    (ApiKey::LIST_OFFSETS, 1),
    (ApiKey::OFFSET_FOR_LEADER_EPOCH, 2),
    (ApiKey::DESCRIBE_CONFIGS, 1),
];

impl Release {
    /// Every API that is answered, with its versions: what the release speaks and we do, too.
    pub fn versions(self) -> impl Iterator<Item = (ApiKey, Versions)> {
        GREATEST.iter().filter_map(move |(key, greatest)| {
            let released = Versions { least: self.least(*key), most: greatest[self as usize] };
            let ours = match *key {
                ApiKey::FETCH => Versions {
                    least: *wire::fetch::VERSIONS.start(),
                    most: *wire::fetch::VERSIONS.end(),
                },
                key => key.spoken()?,
            };
            Some((*key, released.common(ours)?))
        })
    }

    /// Whether a request of this version is answered.
    #[must_use]
    pub fn speaks(self, key: ApiKey, version: i16) -> bool {
        self.versions().any(|(known, versions)| known == key && versions.contains(version))
    }

    fn least(self, key: ApiKey) -> i16 {
        let least = LEAST_IN_4.iter().find(|(known, _)| *known == key);
        if self == Self::Kafka44 { least.map_or(0, |(_, least)| *least) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_speak_what_they_spoke() {
        assert!(Release::Kafka21.speaks(ApiKey::FETCH, 10));
        assert!(!Release::Kafka21.speaks(ApiKey::FETCH, 11));
        assert!(!Release::Kafka21.speaks(ApiKey::DESCRIBE_CLUSTER, 0));
        assert!(Release::Kafka44.speaks(ApiKey::FETCH, 18));
        assert!(!Release::Kafka44.speaks(ApiKey::OFFSET_FOR_LEADER_EPOCH, 1));
    }
}
