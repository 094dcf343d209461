//! Reads values and gathers the mistakes in them.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::file::ConfigFile;
use super::given::{Given, Place};
use super::mistake::Mistake;
use super::raw::{LogOptions, NodeOptions, SourceOptions};
use crate::command::quantity::{
    Bytes, DURATION_ALLOWED, SIZE_ALLOWED, Span, parse_duration, parse_size,
};

/// An option's table in the file and its name there and on the command line.
pub(super) struct Key(pub(super) &'static str, pub(super) &'static str);

macro_rules! keys {
    ($options:ident, $table:literal: $($constant:ident $name:literal,)*) => {
        impl $options {
            $(pub(super) const $constant: Key = Key($table, $name);)*
        }
    };
}

keys! { NodeOptions, "node":
    DATA "data", LISTEN "listen", ADVERTISED "advertised", HTTP "http", NODE_ID "node-id",
    SHARDS "shards", PIN "pin", MEMORY "memory", WRITER "writer",
    CHECKPOINT_INTERVAL "checkpoint-interval",
}
keys! { LogOptions, "log":
    SEGMENT_BYTES "segment-bytes", SEGMENT_MS "segment-ms",
    INDEX_INTERVAL_BYTES "index-interval-bytes", RETENTION_MS "retention-ms",
    RETENTION_BYTES "retention-bytes", RETENTION_CHECK_INTERVAL "retention-check-interval",
}
keys! { SourceOptions, "source":
    FROM "from", TOPICS "topics", EXCLUDE "exclude", CLUSTER_ID "cluster-id",
    CLIENT_ID "client-id", FETCHERS_PER_BROKER "fetchers-per-broker",
    FETCH_BYTES_MAX "fetch-bytes-max", PARTITION_FETCH_BYTES_MAX "partition-fetch-bytes-max",
    FETCH_MIN_BYTES "fetch-min-bytes", FETCH_MAX_WAIT "fetch-max-wait",
    METADATA_MAX_AGE "metadata-max-age", REWRITE "rewrite",
}

/// Reads values and gathers the mistakes in them. What could not be read is left out, so that the
/// rest can still be checked.
pub(super) struct Checker<'a> {
    pub(super) file: Option<&'a ConfigFile>,
    pub(super) mistakes: Vec<Mistake>,
}

impl Checker<'_> {
    pub(super) fn mistake(&mut self, key: &Key, given: &Given, wrong: impl Into<String>) {
        let (Key(table, name), text) = (key, &given.text);
        let place = match (given.place, self.file) {
            (Place::File { position }, Some(file)) => {
                format!("{}: {table}.{name} = {text:?}", file.place(position))
            }
            _ => format!("--{name} {text:?}"),
        };
        self.mistakes.push(Mistake { place, wrong: wrong.into() });
    }

    pub(super) fn missing(&mut self, key: &Key, remedy: &str) {
        let Key(table, name) = key;
        let wrong = match self.file {
            Some(_) => format!("is missing, and {table}.{name} in the file, too: {remedy}"),
            None => format!("is missing: {remedy}"),
        };
        self.mistakes.push(Mistake { place: format!("--{name}"), wrong });
    }

    pub(super) fn read<T>(
        &mut self,
        key: &Key,
        given: Option<&Given>,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let given = given?;
        match parse(given.text.trim()) {
            Ok(value) => Some(value),
            Err(wrong) => {
                self.mistake(key, given, wrong);
                None
            }
        }
    }

    pub(super) fn number(
        &mut self,
        key: &Key,
        given: Option<&Given>,
        allowed: RangeInclusive<u64>,
    ) -> Option<u64> {
        self.read(key, given, |text| {
            let number = text.parse().ok().filter(|number| allowed.contains(number));
            let (least, most) = (allowed.start(), allowed.end());
            number.ok_or_else(|| format!("must be a number from {least} to {most}"))
        })
    }

    pub(super) fn size(
        &mut self,
        key: &Key,
        given: Option<&Given>,
        allowed: RangeInclusive<u64>,
    ) -> Option<u64> {
        self.read(key, given, |text| {
            let bytes = parse_size(text).ok_or_else(|| format!("must be {SIZE_ALLOWED}"))?;
            let (least, most) = (*allowed.start(), *allowed.end());
            let wrong = || {
                let near = (Bytes(least), Bytes(most));
                format!("must be from {least} ({}) to {most} bytes ({})", near.0, near.1)
            };
            allowed.contains(&bytes).then_some(bytes).ok_or_else(wrong)
        })
    }

    pub(super) fn duration(
        &mut self,
        key: &Key,
        given: Option<&Given>,
        allowed: RangeInclusive<Duration>,
    ) -> Option<Duration> {
        self.read(key, given, |text| {
            let found =
                parse_duration(text).ok_or_else(|| format!("must be {DURATION_ALLOWED}"))?;
            let (least, most) = (allowed.start(), allowed.end());
            let wrong = || format!("must be from {} ms to {}", least.as_millis(), Span(*most));
            allowed.contains(&found).then_some(found).ok_or_else(wrong)
        })
    }

    /// A duration under one of Kafka's names in `.ms`: bare numbers are milliseconds there. `never`
    /// names the end of time, where there may be one; it is -1.
    pub(super) fn milliseconds(
        &mut self,
        key: &Key,
        given: Option<&Given>,
        never: Option<&str>,
    ) -> Option<i64> {
        self.read(key, given, |text| {
            if never.is_some_and(|word| text == word || text == "-1") {
                return Ok(-1);
            }
            let parsed = parse_duration(text).map(|found| found.as_millis());
            let ms = parsed.or_else(|| text.parse::<u64>().ok().map(u128::from));
            let ms = ms.and_then(|ms| i64::try_from(ms).ok()).filter(|&ms| ms > 0);
            let or_never = never.map_or(String::new(), |word| format!(", or {word}"));
            ms.ok_or_else(|| {
                format!("must be milliseconds from 1 on, or {DURATION_ALLOWED}{or_never}")
            })
        })
    }
}
