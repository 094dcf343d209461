//! From texts to a configuration that can be used as it stands.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use engine::config::{Config, MEMORY_BYTES_LEAST};
use engine::source::{LinkOptions, TopicFilter};
use engine::store::LogConfig;
use wire::ids::BrokerId;

use super::checker::{Checker, Key};
use super::file::ConfigFile;
use super::given::Given;
use super::mistake::Mistakes;
use super::parse::{parse_address, parse_folder, parse_name, parse_target, parse_writer};
use super::raw::{LogOptions, NodeOptions, Options, SourceOptions};
use crate::command::quantity::{SIZE_ALLOWED, parse_size};

/// What the configuration is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// There must be a source.
    Mirror,
    /// A source in the file is checked, and not mirrored.
    Serve,
}

pub(super) fn check(
    options: &Options,
    file: Option<&ConfigFile>,
    purpose: Purpose,
) -> Result<Config, Mistakes> {
    let mut checker = Checker { file, mistakes: Vec::new() };
    let mut config = node(&mut checker, &options.node);
    config.log = Arc::new(log(&mut checker, &options.log, &config.log));
    let key = &LogOptions::RETENTION_CHECK_INTERVAL;
    let interval = checker.duration(key, options.log.retention_check_interval.as_ref(), INTERVALS);
    config.retention_check_interval = interval.unwrap_or(config.retention_check_interval);
    let link = source(&mut checker, &options.source, &config, purpose);
    config.source = (purpose == Purpose::Mirror).then_some(link);
    match checker.mistakes {
        none if none.is_empty() => Ok(config),
        mistakes => Err(Mistakes(mistakes)),
    }
}

/// What an interval may be.
const INTERVALS: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_hours(24);

fn node(checker: &mut Checker<'_>, options: &NodeOptions) -> Config {
    type Keys = NodeOptions;
    let data = checker.read(&Keys::DATA, options.data.as_ref(), parse_folder);
    if options.data.is_none() {
        checker.missing(&Keys::DATA, "say in which folder the topics are kept");
    }
    let mut config = Config::new(data.unwrap_or_default());
    let listen = checker.read(&Keys::LISTEN, options.listen.as_ref(), parse_address);
    config.listen = listen.unwrap_or(config.listen);
    config.advertised = checker.read(&Keys::ADVERTISED, options.advertised.as_ref(), parse_target);
    if let (None, Some(given)) = (&options.advertised, &options.listen)
        && config.listen.ip().is_unspecified()
    {
        let wrong = "clients cannot be told to come to \"any address\": say with --advertised \
                     HOST:PORT where they reach this node";
        checker.mistake(&Keys::LISTEN, given, wrong);
    }
    config.http = checker.read(&Keys::HTTP, options.http.as_ref(), parse_address);
    let node_id = checker.number(&Keys::NODE_ID, options.node_id.as_ref(), 0..=i32::MAX as u64);
    if let Some(id) = node_id.and_then(|id| i32::try_from(id).ok()) {
        config.node_id = BrokerId(id);
    }
    let shards = checker.number(&Keys::SHARDS, options.shards.as_ref(), 1..=256);
    config.shards = shards.and_then(|n| u16::try_from(n).ok()).unwrap_or(config.shards);
    let pin = checker.read(&Keys::PIN, options.pin.as_ref(), |text| match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("must be true or false".to_string()),
    });
    config.pin = pin.unwrap_or(false);
    config.memory_bytes = memory(checker, options, &config);
    let writer = checker.read(&Keys::WRITER, options.writer.as_ref(), parse_writer);
    config.writer = writer.unwrap_or_default();
    let interval = options.checkpoint_interval.as_ref();
    let interval = checker.duration(&Keys::CHECKPOINT_INTERVAL, interval, INTERVALS);
    config.checkpoint_interval = interval.unwrap_or(config.checkpoint_interval);
    config
}

/// Memory is said for the whole process, and each shard needs its least part of it.
fn memory(checker: &mut Checker<'_>, options: &NodeOptions, config: &Config) -> usize {
    let least = usize::from(config.shards) * MEMORY_BYTES_LEAST;
    let key = &NodeOptions::MEMORY;
    let Some(given) = &options.memory else { return config.memory_bytes.max(least) };
    let bytes = checker.read(key, Some(given), |text| {
        let bytes = parse_size(text).ok_or_else(|| format!("must be {SIZE_ALLOWED}"))?;
        usize::try_from(bytes).map_err(|_| "is more than can be addressed".to_string())
    });
    let bytes = bytes.unwrap_or(least);
    if bytes < least {
        let (shards, each) = (config.shards, MEMORY_BYTES_LEAST >> 20);
        let wrong = format!(
            "is too little for {shards} shards, which need {each}MiB each: give {}MiB or more, or \
             fewer --shards",
            least >> 20
        );
        checker.mistake(key, given, wrong);
    }
    bytes
}

fn log(checker: &mut Checker<'_>, options: &LogOptions, defaults: &LogConfig) -> LogConfig {
    type Keys = LogOptions;
    // Positions in segments are 31 bits wide in Kafka's indexes.
    let most = i32::MAX as u64;
    let bytes = options.segment_bytes.as_ref();
    let segment_bytes = checker.size(&Keys::SEGMENT_BYTES, bytes, 16 << 10..=most);
    let segment_ms = checker.milliseconds(&Keys::SEGMENT_MS, options.segment_ms.as_ref(), None);
    let bytes = options.index_interval_bytes.as_ref();
    let interval = checker.size(&Keys::INDEX_INTERVAL_BYTES, bytes, 0..=most);
    let ms = options.retention_ms.as_ref();
    let retention_ms = checker.milliseconds(&Keys::RETENTION_MS, ms, Some("forever"));
    let bytes = options.retention_bytes.as_ref();
    let retention_bytes = checker.read(&Keys::RETENTION_BYTES, bytes, |text| match text {
        "unlimited" | "-1" => Ok(-1),
        text => parse_size(text)
            .and_then(|bytes| i64::try_from(bytes).ok())
            .ok_or_else(|| format!("must be {SIZE_ALLOWED}, or unlimited")),
    });
    let narrow = |bytes: Option<u64>| bytes.and_then(|bytes| u32::try_from(bytes).ok());
    LogConfig {
        segment_bytes: narrow(segment_bytes).unwrap_or(defaults.segment_bytes),
        segment_ms: segment_ms.unwrap_or(defaults.segment_ms),
        index_interval_bytes: narrow(interval).unwrap_or(defaults.index_interval_bytes),
        retention_ms: retention_ms.unwrap_or(defaults.retention_ms),
        retention_bytes: retention_bytes.unwrap_or(defaults.retention_bytes),
        ..defaults.clone()
    }
}

fn source(
    checker: &mut Checker<'_>,
    options: &SourceOptions,
    config: &Config,
    purpose: Purpose,
) -> LinkOptions {
    type Keys = SourceOptions;
    let defaults = LinkOptions::default();
    let bootstrap = brokers(checker, &options.from);
    if purpose == Purpose::Mirror {
        if options.from.is_empty() {
            checker.missing(&Keys::FROM, "say where the source cluster is, as HOST:PORT");
        }
        if options.topics.is_empty() {
            checker.missing(&Keys::TOPICS, "say which topics to mirror, '.*' for all");
        }
    }
    let client_id = checker.read(&Keys::CLIENT_ID, options.client_id.as_ref(), parse_name);
    let cluster_id = checker.read(&Keys::CLUSTER_ID, options.cluster_id.as_ref(), parse_name);
    let count = options.fetchers_per_broker.as_ref();
    let fetchers = checker.number(&Keys::FETCHERS_PER_BROKER, count, 1..=64);
    let (response, partition) = fetch_sizes(checker, options, config);
    let least = options.fetch_min_bytes.as_ref();
    let fetch_min = checker.size(&Keys::FETCH_MIN_BYTES, least, 0..=i32::MAX as u64);
    let wait = options.fetch_max_wait.as_ref();
    let waits = Duration::ZERO..=Duration::from_mins(1);
    let wait = checker.duration(&Keys::FETCH_MAX_WAIT, wait, waits);
    let age = options.metadata_max_age.as_ref();
    let age = checker.duration(&Keys::METADATA_MAX_AGE, age, INTERVALS);
    LinkOptions {
        bootstrap,
        cluster_id,
        client_id: client_id.unwrap_or(defaults.client_id),
        topics: topics(checker, options),
        rewritten_addresses: rewrites(checker, &options.rewrite),
        fetchers_per_broker: fetchers
            .and_then(|count| u32::try_from(count).ok())
            .unwrap_or(defaults.fetchers_per_broker),
        fetch_max_wait: wait.unwrap_or(defaults.fetch_max_wait),
        fetch_min_bytes: narrow(fetch_min).unwrap_or(defaults.fetch_min_bytes),
        fetch_bytes_max: response,
        partition_fetch_bytes_max: partition,
        metadata_max_age: age.unwrap_or(defaults.metadata_max_age),
        ..LinkOptions::default()
    }
}

fn narrow(bytes: Option<u64>) -> Option<i32> {
    bytes.and_then(|bytes| i32::try_from(bytes).ok())
}

/// What a fetch may bring must fit into a shard's buffers; what is not said is made to fit.
fn fetch_sizes(checker: &mut Checker<'_>, options: &SourceOptions, config: &Config) -> (i32, i32) {
    type Keys = SourceOptions;
    let defaults = LinkOptions::default();
    let room = config.memory_bytes / usize::from(config.shards.max(1));
    let most = (room as u64).min(engine::limits::RESPONSE_BYTES_MAX as u64);
    let bytes = options.fetch_bytes_max.as_ref();
    let response = narrow(checker.size(&Keys::FETCH_BYTES_MAX, bytes, 1 << 10..=most));
    let half = i32::try_from(room / 2).unwrap_or(i32::MAX);
    let response = response.unwrap_or(defaults.fetch_bytes_max.min(half));
    let bytes = options.partition_fetch_bytes_max.as_ref();
    let most = u64::try_from(response).unwrap_or(0);
    let partition = checker.size(&Keys::PARTITION_FETCH_BYTES_MAX, bytes, 1 << 10..=most);
    let partition = narrow(partition).unwrap_or(defaults.partition_fetch_bytes_max.min(response));
    (response, partition)
}

fn brokers(checker: &mut Checker<'_>, from: &[Given]) -> Vec<(String, u16)> {
    let mut brokers = Vec::new();
    for given in from {
        let found = checker.read(&SourceOptions::FROM, Some(given), |text| {
            text.split(',').map(|each| parse_target(each.trim())).collect::<Result<Vec<_>, _>>()
        });
        brokers.extend(found.unwrap_or_default());
    }
    brokers
}

/// Each pattern is checked by itself, so that every broken one is named.
fn topics(checker: &mut Checker<'_>, options: &SourceOptions) -> TopicFilter {
    let mut patterns = |key: &Key, given: &[Given]| -> Vec<String> {
        let sound = given.iter().filter_map(|given| {
            checker.read(key, Some(given), |text| match TopicFilter::new(&[text], &[]) {
                _ if text.is_empty() => Err("must not be empty: '.*' for all topics".into()),
                // Where it does not count repetitions it can match nothing.
                _ if text.contains(',') && !text.contains('{') => {
                    Err("no topic has a comma in its name: put | between names".into())
                }
                Ok(_) => Ok(text.to_string()),
                Err(error) => {
                    let error = error.to_string();
                    let reason = error.lines().last().unwrap_or_default();
                    Err(format!("is no regular expression: {reason}"))
                }
            })
        });
        sound.collect()
    };
    let include = patterns(&SourceOptions::TOPICS, &options.topics);
    let exclude = patterns(&SourceOptions::EXCLUDE, &options.exclude);
    TopicFilter::new(&include, &exclude).unwrap_or_default()
}

type Addresses = BTreeMap<(String, u16), (String, u16)>;

fn rewrites(checker: &mut Checker<'_>, given: &[Given]) -> Addresses {
    let mut map = Addresses::new();
    for given in given {
        let pair = checker.read(&SourceOptions::REWRITE, Some(given), |text| {
            let (from, to) = text
                .split_once('=')
                .ok_or("must be HOST:PORT=HOST:PORT, from where a broker says to where it is")?;
            Ok((parse_target(from.trim())?, parse_target(to.trim())?))
        });
        if let Some((from, to)) = pair
            && map.insert(from, to).is_some()
        {
            checker.mistake(
                &SourceOptions::REWRITE,
                given,
                "this broker has another address already",
            );
        }
    }
    map
}
