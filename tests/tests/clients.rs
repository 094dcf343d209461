//! Real clients read from farspan what they read from its source: the same records at the same
//! offsets, with the same timestamps and headers; and who wants to write is told at once.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tests::kafka::clients::console_consumer;
use tests::kafka::install::run;
use tests::kafka::joined::fingerprint;
use tests::kafka::{At, Isolation, Kcat, Python};
use tests::mirror::{Mirror, WITHIN};
use tests::process::{Process, wait_until};
use tests::stage::Stage;

const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];

/// The topics of the source that all tests read, and their partitions.
const TOPICS: [(&str, u32); 5] =
    [("mixed", 2), ("appended", 1), ("transactions", 1), ("trimmed", 1), ("empty", 1)];

/// The first timestamp in the topic `mixed`; the next ones lie before and after it.
const FIRST_MS: i64 = 1_700_000_000_000;

macro_rules! on_every_version {
    ($($name:ident)*) => {
        mod kafka_2_8 { $(#[test] fn $name() { super::$name(super::stage("2.8.2")); })* }
        mod kafka_3_9 { $(#[test] fn $name() { super::$name(super::stage("3.9.1")); })* }
        mod kafka_4_4 { $(#[test] fn $name() { super::$name(super::stage("4.4.0")); })* }
    };
}

on_every_version! {
    java_clients_read_the_same_records
    librdkafka_reads_the_same_records
    a_client_in_pure_python_reads_the_same_records
    the_console_consumer_of_that_version_prints_the_same_text
    offsets_are_the_same_at_both_ends_and_at_every_time
    reading_from_inside_a_batch_gives_the_same_records
    a_consumer_that_waits_at_the_end_is_woken_by_new_records
    a_producer_is_refused_at_once_and_nothing_is_written
    topics_are_described_as_at_the_source
}

/// The source of a version, with the topics of [`TOPICS`] in it.
fn stage(version: &str) -> &'static Stage {
    static FILLED: Mutex<Option<HashSet<String>>> = Mutex::new(None);
    let stage = Stage::of(concat!(env!("CARGO_TARGET_TMPDIR"), "/clients"), version);
    let mut filled = FILLED.lock().expect("filling failed, as told above");
    if filled.get_or_insert_default().insert(version.to_owned()) {
        fill(stage);
    }
    stage
}

fn fill(stage: &Stage) {
    let source = stage.source();
    let config = ["retention.ms=-1", "segment.bytes=1048576"];
    stage.create("mixed", 2, &config).unwrap();
    stage.create("appended", 1, &["message.timestamp.type=LogAppendTime"]).unwrap();
    for topic in ["transactions", "trimmed", "empty"] {
        stage.create(topic, 1, &[]).unwrap();
    }
    for (round, codec) in CODECS.into_iter().enumerate() {
        let first = (FIRST_MS + [0, -50_000, 70_000, 70_000, 30_000][round]).to_string();
        let options = [
            ("--partitions", "2"),
            ("--records", "4000"),
            ("--size", "500"),
            ("--compression", codec),
            ("--tombstone-every", "11"),
            ("--timestamp-first", &first),
            ("--timestamp-step", ["1", "-7", "0", "10", "3"][round]),
        ];
        source.produce("mixed", &options).unwrap();
        source.produce("appended", &[("--records", "200"), ("--compression", codec)]).unwrap();
    }
    let options = [("--transactions", "6"), ("--leave-open", "true"), ("--compression", "lz4")];
    source.transactions("transactions", &options).unwrap();
    // Rising timestamps: Kafka may answer the question for the highest one with an offset that lies
    // before its log start, from a batch that the mirror never got.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis().to_string();
    let options = [("--records", "2000"), ("--linger-ms", "50"), ("--timestamp-first", &now)];
    source.produce("trimmed", &options).unwrap();
    assert_eq!(source.delete_records("trimmed", 0, 1234).unwrap(), 1234);
}

/// A mirror of [`TOPICS`] that has caught up, and the client that talks to it.
fn mirrored(stage: &Stage) -> (Mirror, At) {
    let names = TOPICS.map(|(topic, _)| topic);
    let mirror = Mirror::start(&stage.cluster, &names);
    let here = stage.at(&mirror.bootstrap());
    for (topic, partitions) in TOPICS {
        let from = if topic == "trimmed" { 1234 } else { 0 };
        for partition in 0..partitions {
            mirror.await_same(&stage.cluster, topic, partition, from);
        }
    }
    let ends = |at: &At, topic| -> Vec<(i64, i64)> {
        let offsets = at.offsets(topic, None, Isolation::Uncommitted).unwrap();
        offsets.iter().map(|ends| (ends.earliest, ends.latest)).collect()
    };
    for topic in names {
        let theirs = ends(&stage.source(), topic);
        wait_until("farspan to answer for all it has", WITHIN, || {
            (ends(&here, topic) == theirs).then_some(())
        })
        .unwrap_or_else(|error| {
            panic!("{topic}: {error}: {:?}, not {theirs:?}", ends(&here, topic))
        });
    }
    (mirror, here)
}

fn java_clients_read_the_same_records(stage: &Stage) {
    let (_mirror, here) = mirrored(stage);
    for (topic, _) in TOPICS {
        for isolation in Isolation::BOTH {
            let theirs = stage.source().digest(topic, isolation).unwrap();
            assert_eq!(here.digest(topic, isolation).unwrap(), theirs, "{topic}, {isolation:?}");
        }
    }
    let options = [("--isolation", "read_committed"), ("--max-partition-fetch-bytes", "2000")];
    let digest = |at: &At| {
        let mut arguments = vec!["mixed"];
        arguments.extend(options.iter().flat_map(|(name, value)| [*name, *value]));
        at.ask("digest", &arguments).unwrap()
    };
    assert_eq!(digest(&here), digest(&stage.source()), "in fetches smaller than a batch");
}

fn librdkafka_reads_the_same_records(stage: &Stage) {
    let (mirror, _) = mirrored(stage);
    let python = Python::get().unwrap();
    let kcat = Kcat::get();
    for topic in ["mixed", "appended", "transactions", "trimmed"] {
        for isolation in Isolation::BOTH {
            let theirs = stage.source().digest(topic, isolation).unwrap();
            let ours = python.digest(&mirror.bootstrap(), topic, isolation).unwrap();
            assert_eq!(ours, theirs, "{topic}, {isolation:?}");
            let Ok(kcat) = &kcat else { continue };
            for theirs in theirs {
                let bootstrap = mirror.bootstrap();
                let ours = kcat.digest(&bootstrap, topic, theirs.partition, isolation).unwrap();
                assert_eq!(ours, theirs.kcat(), "{topic}, {isolation:?}");
            }
        }
    }
}

fn a_client_in_pure_python_reads_the_same_records(stage: &Stage) {
    let (mirror, _) = mirrored(stage);
    let python = Python::get().unwrap();
    for topic in ["mixed", "appended", "transactions", "trimmed"] {
        // Only what it reads of the source too can be asked of it here.
        let isolation = Isolation::Uncommitted;
        let theirs = stage.source().digest(topic, isolation).unwrap();
        let ours = python.digest_pure(&mirror.bootstrap(), topic, isolation).unwrap();
        assert_eq!(ours, theirs, "{topic}, {isolation:?}");
    }
    let theirs =
        python.digest_pure(&stage.cluster.bootstrap(), "transactions", Isolation::Committed);
    let ours = python.digest_pure(&mirror.bootstrap(), "transactions", Isolation::Committed);
    assert_eq!(ours.unwrap(), theirs.unwrap());
}

fn the_console_consumer_of_that_version_prints_the_same_text(stage: &Stage) {
    let (mirror, here) = mirrored(stage);
    let java = stage.cluster.installation();
    let committed = here.digest("transactions", Isolation::Committed).unwrap()[0].records;
    let readings = [
        ("mixed", ("earliest", 10_000), Isolation::Uncommitted),
        ("transactions", ("earliest", committed), Isolation::Committed),
        // Inside a batch.
        ("trimmed", ("1301", 699), Isolation::Uncommitted),
    ];
    for (topic, from, isolation) in readings {
        let [ours, theirs] = [mirror.bootstrap(), stage.cluster.bootstrap()]
            .map(|at| console_consumer(java, &at, (topic, 0), from, isolation).unwrap());
        assert!(theirs.contains("Offset:") && theirs.contains("CreateTime:"), "{theirs:.200}");
        assert!(ours == theirs, "{topic}: {ours:.400}\nis not\n{theirs:.400}");
    }
}

fn offsets_are_the_same_at_both_ends_and_at_every_time(stage: &Stage) {
    let (_mirror, here) = mirrored(stage);
    let source = stage.source();
    let now = source.print("appended", Isolation::Uncommitted).unwrap();
    let timestamp = |line: &String| -> i64 {
        let (_, rest) = line.split_once("\"timestamp\":").unwrap();
        rest.split_once(',').unwrap().0.parse().unwrap()
    };
    let (first, last) = (timestamp(&now[0]), timestamp(now.last().unwrap()));
    let mut times = vec![0, first, (first + last) / 2, last, last + 1, last + 3_600_000];
    for after in [-80_000, -50_000, -49_999, -1, 0, 1, 70_000, 70_001, 90_000, 109_990, 110_000] {
        times.push(FIRST_MS + after);
    }
    for (topic, _) in TOPICS {
        for &time in &times {
            for isolation in Isolation::BOTH {
                let ours = here.offsets(topic, Some(time), isolation).unwrap();
                let mut theirs = source.offsets(topic, Some(time), isolation).unwrap();
                if !stage.has_max_timestamp() {
                    // A question that this source does not know yet, and we do.
                    for (theirs, ours) in theirs.iter_mut().zip(&ours) {
                        theirs.max_timestamp = ours.max_timestamp;
                    }
                }
                assert_eq!(ours, theirs, "{topic} at {time}, {isolation:?}");
            }
        }
    }
}

fn reading_from_inside_a_batch_gives_the_same_records(stage: &Stage) {
    let Ok(kcat) = Kcat::get() else { return eprintln!("left out: kcat is missing") };
    let (mirror, _) = mirrored(stage);
    for (topic, offset) in [("mixed", "4321"), ("transactions", "33"), ("trimmed", "1999")] {
        let [ours, theirs] = [mirror.bootstrap(), stage.cluster.bootstrap()].map(|bootstrap| {
            let mut command = kcat.command();
            command.args(["-C", "-q", "-e", "-b", &bootstrap, "-t", topic, "-p", "0"]);
            command.args(["-o", offset, "-f", "%o %T %h %K %S %k %s\n"]);
            run("kcat", &mut command).unwrap()
        });
        let (first, _) = theirs.split_once(' ').unwrap();
        // A marker of a transaction is no record: the next one comes first.
        let after = first.parse::<i64>().unwrap() - offset.parse::<i64>().unwrap();
        assert!((0..3).contains(&after), "{theirs:.100}");
        assert!(ours == theirs, "{topic}: {ours:.400}\nis not\n{theirs:.400}");
    }
}

fn a_consumer_that_waits_at_the_end_is_woken_by_new_records(stage: &Stage) {
    let Ok(kcat) = Kcat::get() else { return eprintln!("left out: kcat is missing") };
    stage.create("wakes", 1, &[]).unwrap();
    let source = stage.source();
    source.produce("wakes", &[("--records", "1")]).unwrap();
    let mirror = Mirror::start(&stage.cluster, &["wakes"]);
    mirror.await_topic(&stage.cluster, "wakes", 1);
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("output");
    let mut command = kcat.command();
    command.args(["-C", "-u", "-b", &mirror.bootstrap(), "-t", "wakes", "-p", "0", "-o", "0"]);
    // Much longer than a record may take: only being woken is quick enough.
    command.args(["-X", "fetch.wait.max.ms=60000", "-X", "socket.timeout.ms=70000"]);
    command.args(["-f", "at %o\n"]);
    let _consumer = Process::start("kcat", command, &output).unwrap();
    for offset in 0..5 {
        if offset > 0 {
            source.produce("wakes", &[("--records", "1"), ("--linger-ms", "0")]).unwrap();
        }
        let produced = Instant::now();
        wait_until("a record to come through", Duration::from_secs(10), || {
            let text = std::fs::read_to_string(&output).unwrap();
            text.contains(&format!("at {offset}\n")).then_some(())
        })
        .unwrap_or_else(|error| panic!("{error}: {:?}", std::fs::read_to_string(&output)));
        eprintln!("offset {offset} came after {:?}", produced.elapsed());
    }
}

fn a_producer_is_refused_at_once_and_nothing_is_written(stage: &Stage) {
    let (mirror, here) = mirrored(stage);
    let before = fingerprint(&mirror.partition_dir("mixed", 0), 0).unwrap();
    let at_once = |what: &str, ask: &dyn Fn() -> Result<(), String>| -> String {
        let asked = Instant::now();
        let error = ask().expect_err(what);
        assert!(asked.elapsed() < Duration::from_secs(10), "{what} took {:?}", asked.elapsed());
        eprintln!("{what}: {error}");
        error
    };
    let error = at_once("a plain producer", &|| {
        here.produce("mixed", &[("--idempotent", "false")]).map(|_| ())
    });
    assert!(error.contains("read-only mirror"), "{error}");
    let error = at_once("an idempotent producer", &|| here.produce("mixed", &[]).map(|_| ()));
    assert!(error.contains("read-only mirror"), "{error}");
    let error = at_once("transactions", &|| here.transactions("mixed", &[]).map(|_| ()));
    // Either the coordinator of transactions is refused or the question for it.
    let is_final = error.contains("Authorization") || error.contains("UnsupportedVersion");
    assert!(is_final, "{error}");
    if let Ok(kcat) = Kcat::get() {
        let error = at_once("kcat", &|| {
            let file = tempfile::NamedTempFile::new().map_err(|e| e.to_string())?;
            std::fs::write(file.path(), "value\n").map_err(|e| e.to_string())?;
            let mut command = kcat.command();
            command.args(["-P", "-b", &mirror.bootstrap(), "-t", "mixed", "-p", "0"]);
            command.arg("-l").arg(file.path());
            run("kcat -P", &mut command).map(|_| ())
        });
        assert!(error.contains("olicy"), "{error}");
    }
    assert_eq!(fingerprint(&mirror.partition_dir("mixed", 0), 0).unwrap(), before);
    assert_eq!(
        here.offsets("mixed", None, Isolation::Uncommitted).unwrap()[0].latest,
        stage.source().offsets("mixed", None, Isolation::Uncommitted).unwrap()[0].latest
    );
}

fn topics_are_described_as_at_the_source(stage: &Stage) {
    let (mirror, here) = mirrored(stage);
    for (topic, _) in TOPICS {
        // Both are node 1 and alone.
        assert_eq!(here.describe(topic).unwrap(), stage.source().describe(topic).unwrap());
    }
    let error = here.describe("nowhere").unwrap_err();
    assert!(error.contains("UnknownTopicOrPartition"), "{error}");
    let Ok(kcat) = Kcat::get() else { return eprintln!("without kcat") };
    let mut command = kcat.command();
    command.args(["-L", "-b", &mirror.bootstrap()]);
    let listed = run("kcat -L", &mut command).unwrap();
    assert!(listed.contains(&format!("broker 1 at {}", mirror.bootstrap())), "{listed}");
    for (topic, partitions) in TOPICS {
        let line = format!("topic \"{topic}\" with {partitions} partitions:");
        assert!(listed.contains(&line), "{listed}");
    }
}
