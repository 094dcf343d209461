//! What an operator may say, and what is answered where it is wrong.

use std::time::Duration;

use clap::Parser;
use engine::config::Config;
use engine::ring::WriterKind;

use super::*;

#[derive(Parser)]
struct Line {
    #[arg(long)]
    config: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

fn read(words: &str, purpose: Purpose) -> Result<Config, Vec<String>> {
    let words = std::iter::once("farspan").chain(words.split_whitespace());
    let line = Line::try_parse_from(words).expect("flags that exist");
    config(line.options, line.config.as_ref(), purpose)
        .map_err(|mistakes| mistakes.0.iter().map(ToString::to_string).collect())
}

fn mirror(words: &str) -> Result<Config, Vec<String>> {
    read(words, Purpose::Mirror)
}

const LEAST: &str = "--data /tmp/d --from a:9092 --topics .*";

/// The one mistake in a line that is otherwise right.
fn mistake(words: &str) -> String {
    let found = mirror(&format!("{LEAST} {words}")).expect_err("there is a mistake");
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

/// A file with this text, and the flag that names it.
fn file(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("farspan.toml");
    std::fs::write(&path, text).expect("a file");
    let flag = format!("--config {}", path.display());
    (folder, flag)
}

#[test]
fn three_flags_are_enough_to_mirror_and_one_to_serve() {
    let config = mirror(LEAST).expect("no mistake");
    assert_eq!(config.listen.to_string(), "127.0.0.1:9092");
    assert!(config.log.retention_ms == -1 && config.log.retention_bytes == -1);
    let link = config.source.expect("a source");
    assert_eq!(link.bootstrap, [("a".to_string(), 9092)]);
    assert_eq!(link.topics.check("orders", false), Ok(()));
    let config = read("--data /tmp/d", Purpose::Serve).expect("no mistake");
    assert!(config.source.is_none());
}

#[test]
fn every_flag_arrives() {
    let words = "--data /tmp/d --from a:1,b:2 --from [::1]:3 --topics x --topics y.* --exclude y \
                 --listen 127.0.0.1:0 --advertised far:19092 --http 127.0.0.1:9100 --node-id 7 \
                 --shards 2 --pin --memory 256MiB --writer direct --checkpoint-interval 1s \
                 --segment-bytes 64MiB --segment-ms 1h --index-interval-bytes 8192 \
                 --retention-ms 86400000 --retention-bytes 1GiB --retention-check-interval 30s \
                 --cluster-id abc --client-id me --fetchers-per-broker 3 --fetch-bytes-max 20MiB \
                 --partition-fetch-bytes-max 2MiB --fetch-min-bytes 64KiB --fetch-max-wait 200ms \
                 --metadata-max-age 30s --rewrite b1:9092=localhost:19092";
    let config = mirror(words).expect("no mistake");
    assert_eq!((config.node_id.0, config.shards, config.pin), (7, 2, true));
    assert_eq!((config.memory_bytes, config.writer), (256 << 20, WriterKind::Direct));
    assert_eq!(config.advertised, Some(("far".to_string(), 19092)));
    assert_eq!(config.http.map(|address| address.port()), Some(9100));
    assert_eq!(config.checkpoint_interval, Duration::from_secs(1));
    assert_eq!(config.retention_check_interval, Duration::from_secs(30));
    assert_eq!((config.log.segment_bytes, config.log.segment_ms), (64 << 20, 3_600_000));
    assert_eq!((config.log.retention_ms, config.log.retention_bytes), (86_400_000, 1 << 30));
    assert_eq!(config.log.index_interval_bytes, 8_192);
    let link = config.source.expect("a source");
    assert_eq!(link.bootstrap.last(), Some(&("::1".to_string(), 3)));
    assert_eq!(link.bootstrap.len(), 3);
    assert!(link.topics.check("y", false).is_err() && link.topics.check("yes", false).is_ok());
    assert_eq!((link.cluster_id.as_deref(), link.client_id.as_str()), (Some("abc"), "me"));
    assert_eq!((link.fetchers_per_broker, link.fetch_bytes_max), (3, 20 << 20));
    assert_eq!((link.partition_fetch_bytes_max, link.fetch_min_bytes), (2 << 20, 64 << 10));
    assert_eq!(link.fetch_max_wait, Duration::from_millis(200));
    assert_eq!(link.metadata_max_age, Duration::from_secs(30));
    let moved = link.rewritten_addresses.get(&("b1".to_string(), 9092));
    assert_eq!(moved, Some(&("localhost".to_string(), 19092)));
}

#[test]
fn a_file_says_the_same_and_flags_win() {
    let (_folder, flag) = file(
        "[node]\ndata = \"/tmp/d\"\nshards = 1\npin = true\n\n[source]\nfrom = \"a:9092\"\n\
         topics = [\"x\", \"y\"]\n\n[log]\nsegment-bytes = \"32MiB\"\nretention-ms = \"forever\"\n",
    );
    let config = mirror(&format!("{flag} --shards 2 --topics z")).expect("no mistake");
    assert_eq!((config.shards, config.pin, config.log.segment_bytes), (2, true, 32 << 20));
    let topics = config.source.expect("a source").topics;
    assert!(topics.check("x", false).is_err() && topics.check("z", false).is_ok());
}

#[test]
fn one_file_is_good_for_serving_and_mirroring() {
    let (_folder, flag) =
        file("[node]\ndata = \"/tmp/d\"\n[source]\nfrom = \"a:9092\"\ntopics = \".*\"\n");
    assert!(read(&flag, Purpose::Serve).expect("no mistake").source.is_none());
    assert!(mirror(&flag).expect("no mistake").source.is_some());
}

#[test]
fn an_unknown_key_is_named_with_file_and_line() {
    let (_folder, flag) = file("[node]\ndata = \"/tmp/d\"\nlisen = \"x\"\n");
    let found = mirror(&flag).expect_err("there is a mistake");
    assert!(found[0].contains("farspan.toml:3: unknown field `lisen`"), "{found:?}");
    assert!(found[0].contains("`listen`"), "the known ones are named: {found:?}");
    let (_folder, flag) = file("[nod]\n");
    let found = mirror(&flag).expect_err("there is a mistake");
    assert!(found[0].contains("farspan.toml:1: unknown field `nod`"), "{found:?}");
}

#[test]
fn what_is_no_toml_or_of_another_type_is_named_with_its_line() {
    let (_folder, flag) = file("[node]\ndata = \n");
    let found = mirror(&flag).expect_err("there is a mistake");
    assert!(found[0].contains("farspan.toml:2: "), "{found:?}");
    let (_folder, flag) = file("[node]\n\nshards = [1]\n");
    let found = mirror(&flag).expect_err("there is a mistake");
    assert!(found[0].contains("farspan.toml:3: a text, a number"), "{found:?}");
}

#[test]
fn all_mistakes_are_told_at_once_each_where_it_was_made() {
    let (_folder, flag) = file(
        "[node]\ndata = \"/tmp/d\"\nshards = 0\n[source]\nfrom = [\n  \"a\",\n]\ntopics = \"(\"\n",
    );
    let found = mirror(&format!("{flag} --writer fast")).expect_err("there are mistakes");
    let ends = [
        "farspan.toml:3: node.shards = \"0\": must be a number from 1 to 256",
        "--writer \"fast\": must be inline, ring or direct",
        "farspan.toml:5: source.from = \"a\": must be HOST:PORT, such as broker-1:9092 or \
         [::1]:9092",
        "farspan.toml:8: source.topics = \"(\": is no regular expression: error: unclosed group",
    ];
    assert_eq!(found.len(), ends.len(), "{found:?}");
    for (found, end) in found.iter().zip(ends) {
        assert!(found.ends_with(end), "{found}\nis not\n{end}");
    }
}

#[test]
fn what_is_missing_is_told_with_what_to_say() {
    assert_eq!(
        mirror("").expect_err("nothing was said"),
        [
            "--data: is missing: say in which folder the topics are kept",
            "--from: is missing: say where the source cluster is, as HOST:PORT",
            "--topics: is missing: say which topics to mirror, '.*' for all",
        ]
    );
    let (_folder, flag) = file("");
    let found = read(&flag, Purpose::Serve).expect_err("no folder");
    assert_eq!(
        found,
        ["--data: is missing, and node.data in the file, too: say in which folder the topics are \
          kept"]
    );
    let found = mirror("--config /nowhere.toml").expect_err("no file");
    assert!(found[0].starts_with("--config \"/nowhere.toml\": No such file"), "{found:?}");
    let found = mirror("--config /dev/zero").expect_err("no end");
    assert!(found[0].ends_with("bytes are no configuration file"), "{found:?}");
}

#[test]
fn every_mistake_says_what_is_allowed() {
    for (words, message) in [
        ("--listen 9092", "--listen \"9092\": must be HOST:PORT"),
        ("--listen a:b:1", "--listen \"a:b:1\": must be HOST:PORT"),
        ("--listen 0.0.0.0:9092", "--listen \"0.0.0.0:9092\": clients cannot be told to come to"),
        ("--advertised x", "--advertised \"x\": must be HOST:PORT"),
        ("--topics=", "--topics \"\": must not be empty"),
        ("--topics a,b.*", "--topics \"a,b.*\": no topic has a comma in its name: put |"),
        ("--advertised a:0", "--advertised \"a:0\": must have a port that can be connected to"),
        ("--http 127.0.0.1:99999", "--http \"127.0.0.1:99999\": must be HOST:PORT"),
        ("--node-id=-1", "--node-id \"-1\": must be a number from 0 to 2147483647"),
        ("--shards 1000", "--shards \"1000\": must be a number from 1 to 256"),
        ("--pin=maybe", "--pin \"maybe\": must be true or false"),
        ("--memory much", "--memory \"much\": must be a number of bytes, or one with KiB"),
        (
            "--shards 4 --memory 64MiB",
            "--memory \"64MiB\": is too little for 4 shards, which need \
          64MiB each: give 256MiB or more, or fewer --shards",
        ),
        ("--checkpoint-interval 5", "--checkpoint-interval \"5\": must be a number with ms, s"),
        ("--checkpoint-interval 2d", "--checkpoint-interval \"2d\": must be from 10 ms to 1 d 0 h"),
        (
            "--segment-bytes 4GiB",
            "--segment-bytes \"4GiB\": must be from 16384 (16.4 kB) to \
          2147483647 bytes (2.15 GB)",
        ),
        ("--segment-ms 0", "--segment-ms \"0\": must be milliseconds from 1 on, or a number with"),
        ("--retention-ms never", "or forever"),
        ("--retention-bytes -5", "--retention-bytes \"-5\": must be a number of bytes"),
        ("--exclude [", "--exclude \"[\": is no regular expression"),
        ("--cluster-id=", "--cluster-id \"\": must not be empty"),
        ("--fetchers-per-broker 0", "must be a number from 1 to 64"),
        ("--shards 1 --memory 64MiB --fetch-bytes-max 65MiB", "to 67108864 bytes (67.1 MB)"),
        ("--partition-fetch-bytes-max 1GiB", "must be from 1024 (1.02 kB) to"),
        ("--fetch-max-wait 2m", "must be from 0 ms to 1 m 0 s"),
        ("--rewrite a:1", "--rewrite \"a:1\": must be HOST:PORT=HOST:PORT"),
        ("--rewrite a:1=b:1 --rewrite a:1=c:1", "this broker has another address already"),
        ("--data /dev/null", "--data \"/dev/null\": is there, but is not a folder"),
    ] {
        let line = match words.starts_with("--data") {
            true => mirror(&format!("--from a:9092 --topics .* {words}")),
            false => Err(vec![mistake(words)]),
        };
        let found = line.expect_err("there is a mistake");
        assert!(found[0].contains(message), "{}\nis not\n{message}", found[0]);
    }
}

#[test]
fn any_address_is_fine_once_clients_are_told_where_to_come() {
    let words = format!("{LEAST} --listen 0.0.0.0:9092 --advertised far.example:9092");
    assert!(mirror(&words).expect("no mistake").listen.ip().is_unspecified());
}

#[test]
fn memory_that_is_not_said_is_enough_for_all_shards() {
    let config = mirror(&format!("{LEAST} --shards 16")).expect("no mistake");
    assert_eq!(config.memory_bytes, 1 << 30);
    let link = config.source.expect("a source");
    assert_eq!(link.fetch_bytes_max, 32 << 20, "half of a shard's memory");
}
