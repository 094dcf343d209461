//! The way back to a stock cluster: a Kafka broker is started on the folders that farspan wrote, in
//! place of its own, and serves the same records.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use tests::kafka::workload::{PartitionDigest, PartitionOffsets};
use tests::kafka::{At, Cluster, ClusterOptions, Installation, Isolation, Workload};
use tests::mirror::Mirror;
use tests::process::wait_until;
use tests::stage::copy;

const TOPICS: [(&str, u32); 4] = [("codecs", 2), ("open", 1), ("ended", 2), ("trimmed", 1)];

/// Files of a data folder that say something of each log, a line `topic partition offset` each.
const CHECKPOINTS: [&str; 3] = [
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
];

#[test]
fn a_stock_broker_serves_what_farspan_wrote_and_finds_nothing_to_mend() {
    let told = adopt(|mirror| mirror.stop());
    assert!(told.contains("since clean shutdown file was found"), "{told}");
    let of_logs = told
        .lines()
        .filter(|line| line.contains("storage.internals") && !line.contains("__cluster_metadata"));
    let complaints =
        ["orrupt", "Recovering", "nclean", "Exception", "runcat", "nvalid", "not find"];
    let mends: Vec<&str> =
        of_logs.filter(|line| complaints.iter().any(|word| line.contains(word))).collect();
    assert_eq!(mends, Vec::<&str>::new());
    assert_eq!(errors_of_logs(&told), Vec::<&str>::new());
}

#[test]
fn a_stock_broker_recovers_what_a_farspan_left_that_was_not_stopped() {
    let told = adopt(Mirror::die);
    // The index of the active segment is made when it is closed; Kafka makes it anew.
    let is_known = |line: &&str| line.contains("Could not find offset index file");
    let errors = errors_of_logs(&told).into_iter().filter(|line| !is_known(line));
    assert_eq!(errors.collect::<Vec<_>>(), Vec::<&str>::new());
}

/// What a broker says is wrong with its logs. What a controller says while it starts on a busy
/// machine is not about them.
fn errors_of_logs(told: &str) -> Vec<&str> {
    let is_error = |line: &&str| line.contains("ERROR") || line.contains("orrupt");
    told.lines().filter(is_error).filter(|line| !line.contains("ControllerApis")).collect()
}

/// Mirrors a broker, ends the mirror, starts the broker on the mirror's folders and compares; what
/// the broker printed from its start until it served.
fn adopt(end: impl FnOnce(&mut Mirror)) -> String {
    let installation = Installation::get("4.4.0").unwrap();
    let workload = Workload::start(&Installation::clients().unwrap()).unwrap();
    let mut cluster = Cluster::start(&installation, ClusterOptions::default()).unwrap();
    let source = workload.at(&cluster.bootstrap());
    let open = fill(&source);
    let mut mirror = Mirror::start(&cluster, &TOPICS.map(|(topic, _)| topic));
    for (topic, partitions) in TOPICS {
        for partition in 0..partitions {
            let from = if topic == "trimmed" { 777 } else { 0 };
            mirror.await_same(&cluster, topic, partition, from);
        }
    }
    let here = workload.at(&mirror.bootstrap());
    wait_until("farspan to answer as the source", Duration::from_secs(30), || {
        (offsets_of(&here) == offsets_of(&source)).then_some(())
    })
    .unwrap_or_else(|error| panic!("{error}: {:?}, {:?}", offsets_of(&here), offsets_of(&source)));
    // A log start inside a batch is known from the checkpoint alone, which is written now and then.
    let checkpoint = mirror.data().join("log-start-offset-checkpoint");
    wait_until("the checkpoint of the log start", Duration::from_secs(30), || {
        std::fs::read_to_string(&checkpoint).ok()?.contains("trimmed 0 777").then_some(())
    })
    .unwrap();
    let (before, offsets) = (digests_of(&source), offsets_of(&source));
    end(&mut mirror);
    cluster.stop(1).unwrap();
    put_in_place(mirror.data(), &cluster.log_dir(1));
    let printed = std::fs::read(cluster.output(1)).unwrap().len();
    cluster.restart(1).unwrap();
    assert_eq!(digests_of(&source), before);
    assert_eq!(offsets_of(&source), offsets);
    let told = std::fs::read(cluster.output(1)).unwrap().split_off(printed);

    // It lives on: the open transaction ends and new records follow the old.
    source.end_open(&open, true).unwrap();
    wait_until("the transaction to be seen as committed", Duration::from_secs(10), || {
        let committed = source.digest("open", Isolation::Committed).unwrap();
        (committed[0].records > before[&("open", true)][0].records).then_some(())
    })
    .unwrap();
    source.produce("codecs", &[("--partitions", "2"), ("--records", "100")]).unwrap();
    let after = source.offsets("codecs", None, Isolation::Committed).unwrap();
    assert_eq!(after[0].latest, offsets["codecs"][0].latest + 50);
    String::from_utf8_lossy(&told).into_owned()
}

/// The id of the transaction that is left open.
fn fill(source: &At) -> String {
    source.create("codecs", 2, &["segment.bytes=1048576"]).unwrap();
    for topic in ["open", "trimmed"] {
        source.create(topic, 1, &[]).unwrap();
    }
    source.create("ended", 2, &["segment.bytes=1048576"]).unwrap();
    for (topic, _) in TOPICS {
        // Once they answer this, all logs are there.
        source.offsets(topic, None, Isolation::Uncommitted).unwrap();
    }
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let options = [
            ("--partitions", "2"),
            ("--records", "6000"),
            ("--size", "500"),
            ("--compression", codec),
            ("--tombstone-every", "11"),
        ];
        source.produce("codecs", &options).unwrap();
    }
    let options = [("--partitions", "2"), ("--producers", "3"), ("--size", "20000")];
    source.transactions("ended", &options).unwrap();
    source.produce("trimmed", &[("--records", "2000"), ("--linger-ms", "50")]).unwrap();
    assert_eq!(source.delete_records("trimmed", 0, 777).unwrap(), 777);
    let options = [("--transactions", "3"), ("--leave-open", "true")];
    source.transactions("open", &options).unwrap().open.unwrap()
}

/// By topic and whether only what is committed was read.
fn digests_of(at: &At) -> BTreeMap<(&'static str, bool), Vec<PartitionDigest>> {
    let mut digests = BTreeMap::new();
    for (topic, _) in TOPICS {
        for isolation in Isolation::BOTH {
            let digest = at.digest(topic, isolation).unwrap();
            digests.insert((topic, isolation == Isolation::Committed), digest);
        }
    }
    digests
}

fn offsets_of(at: &At) -> BTreeMap<&'static str, Vec<PartitionOffsets>> {
    let offsets = |topic| at.offsets(topic, Some(1_000), Isolation::Committed).unwrap();
    TOPICS.map(|(topic, _)| (topic, offsets(topic))).into()
}

/// Gives the broker that owns the folder `theirs` the logs of `ours` for its own, with all that our
/// folder says of them. What is the broker's alone stays: its name, the metadata, internal topics.
fn put_in_place(ours: &Path, theirs: &Path) {
    for (topic, partitions) in TOPICS {
        for partition in 0..partitions {
            let name = format!("{topic}-{partition}");
            std::fs::remove_dir_all(theirs.join(&name)).unwrap();
            copy(&ours.join(&name), &theirs.join(&name)).unwrap();
        }
    }
    for name in CHECKPOINTS {
        let lines = |folder: &Path| -> Vec<String> {
            let text = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
            text.lines().skip(2).map(str::to_owned).collect()
        };
        let is_mirrored = |line: &String| {
            let topic = line.split(' ').next().unwrap();
            TOPICS.iter().any(|(mirrored, _)| *mirrored == topic)
        };
        let mut all = lines(theirs);
        all.retain(|line| !is_mirrored(line));
        all.extend(lines(ours).into_iter().filter(is_mirrored));
        let head = ["0".to_owned(), all.len().to_string()];
        let text: String = head.iter().chain(&all).map(|line| format!("{line}\n")).collect();
        std::fs::write(theirs.join(name), text).unwrap();
    }
    let clean = ".kafka_cleanshutdown";
    let _ = std::fs::remove_file(theirs.join(clean));
    if ours.join(clean).exists() {
        std::fs::copy(ours.join(clean), theirs.join(clean)).unwrap();
    }
}
