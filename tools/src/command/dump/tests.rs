//! What is shown of sound files, and what is said of broken ones.

use std::fs;

use engine::store::{LeaderEpochs, Producers};
use wire::batch::Compression;
use wire::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};
use wire::record::{ControlKind, end_txn_marker};

use super::*;
use crate::synthetic::{NewBatch, Record};

const BASE: i64 = 100;

/// A partition with one segment: two batches, then a transaction that was aborted.
struct Partition {
    folder: tempfile::TempDir,
    positions: Vec<u32>,
}

impl Partition {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let plain = NewBatch::of(vec![Record::of(1_000, "a").key("k"), Record::of(1_001, "b")]);
        let zipped = NewBatch::filled(3, 50, 2_000, 1).compressed(Compression::Zstd);
        let open = NewBatch::filled(2, 10, 1_500, 2).producer(7, 0, 0).transactional();
        let batches = [
            plain.build(Offset(100), LeaderEpoch(1)),
            zipped.build(Offset(105), LeaderEpoch(1)),
            open.build(Offset(108), LeaderEpoch(2)),
            end_txn_marker(
                ControlKind::Abort,
                Offset(110),
                2_100,
                LeaderEpoch(2),
                (ProducerId(7), ProducerEpoch(0)),
                3,
            ),
        ];
        let mut positions = vec![0_u32];
        for batch in &batches {
            let last = positions.last().expect("not empty");
            positions.push(last + u32::try_from(batch.len()).expect("small"));
        }
        let partition = Self { folder, positions };
        partition.write("log", &batches.concat());
        let index = [(107 - BASE, partition.positions[1]), (110 - BASE, partition.positions[3])];
        partition.write("index", &index.map(|(r, p)| entry(r, p)).concat());
        let times = [(1_001_i64, 1_u32), (2_002, 7), (2_100, 10)];
        let times = times.map(|(t, r)| [&t.to_be_bytes()[..], &r.to_be_bytes()[..]].concat());
        partition.write("timeindex", &times.concat());
        let numbers = [7_i64, 108, 110, 111].map(i64::to_be_bytes).concat();
        partition.write("txnindex", &[&[0, 0], &numbers[..]].concat());
        let mut epochs = LeaderEpochs::default();
        epochs.assign(LeaderEpoch(1), Offset(100));
        epochs.assign(LeaderEpoch(2), Offset(108));
        partition.write_as("leader-epoch-checkpoint", epochs.format().as_bytes());
        let id = "version: 0\ntopic_id: vztcGl49T1uKnC1ufxAhMg";
        partition.write_as("partition.metadata", id.as_bytes());
        partition.write_as("00000000000000000111.snapshot", &Producers::default().snapshot());
        partition
    }

    fn path(&self, suffix: &str) -> PathBuf {
        self.folder.path().join(format!("{BASE:020}.{suffix}"))
    }

    fn write(&self, suffix: &str, bytes: &[u8]) {
        fs::write(self.path(suffix), bytes).expect("a file");
    }

    fn write_as(&self, name: &str, bytes: &[u8]) {
        fs::write(self.folder.path().join(name), bytes).expect("a file");
    }

    /// Changes a file, and tells what is wrong now.
    fn after(suffix: &str, change: impl FnOnce(&Self, &mut Vec<u8>)) -> Vec<String> {
        let partition = Self::new();
        let mut bytes = fs::read(partition.path(suffix)).expect("a file");
        change(&partition, &mut bytes);
        partition.write(suffix, &bytes);
        partition.faults()
    }

    /// The faults, without the folder in them.
    fn faults(&self) -> Vec<String> {
        let summary = check(self.folder.path());
        let folder = format!("{}/", self.folder.path().display());
        let faults = summary.first_faults.iter();
        faults.map(|fault| fault.to_string().replace(&folder, "")).collect()
    }

    fn text(&self, arguments: Arguments) -> String {
        let mut out = Vec::new();
        let paths = vec![self.folder.path().into()];
        dump(&Arguments { paths, ..arguments }, &mut out).expect("memory");
        String::from_utf8(out).expect("text")
    }
}

fn entry(relative: i64, position: u32) -> Vec<u8> {
    let relative = u32::try_from(relative).expect("small");
    [relative.to_be_bytes(), position.to_be_bytes()].concat()
}

#[test]
fn a_sound_partition_has_no_fault_and_all_of_it_is_shown() {
    let partition = Partition::new();
    assert_eq!(partition.faults(), [""; 0]);
    let text = partition.text(Arguments { records: true, ..Arguments::default() });
    for line in [
        "  offsets 100..101 at 0 size ",
        "records 2 epoch 1 time 1970-01-01T00:00:01.000Z..1970-01-01T00:00:01.001Z crc ",
        "    offset 100 1970-01-01T00:00:01.000Z key \"k\" value \"a\"\n",
        " zstd ",
        " producer 7/0 sequence 0..1 transactional ",
        " control abort coordinator epoch 3 ",
        "\n  offset 107 at position ",
        "\n  1970-01-01T00:00:02.100Z newest up to offset 110\n",
        "\n  producer 7 aborted 108..110, last stable offset 111\n",
        "\n  epoch 2 from offset 108\n",
        "\n  topic id vztcGl49T1uKnC1ufxAhMg\n",
        "\n1 partitions, 7 files, 4 batches, 8 records, ",
        ": no fault\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
}

#[test]
fn json_is_one_object_a_line_with_the_same_in_it() {
    let text = Partition::new().text(Arguments { records: true, json: true, ..Default::default() });
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of_type = |kind: &str| lines.iter().filter(|line| line["type"] == kind).collect::<Vec<_>>();
    assert_eq!(of_type("batch").len(), 4);
    assert_eq!(of_type("batch")[3]["control"], "abort");
    assert_eq!(of_type("record")[0]["key"], "k");
    assert!(of_type("record")[2]["value"]["hex"].is_string(), "bytes that are not text");
    assert_eq!(of_type("offset_entry").len(), 2);
    assert_eq!(of_type("aborted_transaction")[0]["producer_id"], 7);
    assert_eq!(of_type("summary")[0]["faults"], 0);
}

#[test]
fn quiet_shows_faults_and_sums_only() {
    let partition = Partition::new();
    let quiet = || Arguments { quiet: true, ..Arguments::default() };
    assert_eq!(partition.text(quiet()).lines().count(), 1);
    let mut bytes = fs::read(partition.path("log")).expect("a file");
    bytes[65] ^= 1;
    partition.write("log", &bytes);
    let text = partition.text(quiet());
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.ends_with(": 1 FAULT\n"), "{text}");
}

#[test]
fn a_flipped_bit_is_found_and_the_batches_behind_it_are_still_read() {
    let faults = Partition::after("log", |partition, bytes| {
        bytes[partition.positions[1] as usize + 70] ^= 0x10;
    });
    assert_eq!(faults.len(), 1, "{faults:?}");
    let partition = Partition::new();
    let place = partition.positions[1];
    let start = format!("FAULT {BASE:020}.log at position {place}, offset 105: CRC 0x");
    assert!(faults[0].starts_with(&start), "{faults:?}");
}

#[test]
fn a_torn_tail_is_found_and_indexes_are_not_blamed_for_it() {
    let faults = Partition::after("log", |_, bytes| bytes.truncate(bytes.len() - 5));
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(
        faults[0].ends_with("bytes announced, 73 left; 73 bytes from here on are not looked at")
    );
    let faults = Partition::after("log", |_, bytes| bytes.extend_from_slice(&[0; 100]));
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].contains("length 0 is not between"), "{faults:?}");
}

#[test]
fn offsets_and_epochs_that_go_back_are_found() {
    let again = |_: &Partition, bytes: &mut Vec<u8>| {
        let first = bytes[..200].to_vec();
        let size = wire::batch::Batch::read(&first, 0).expect("a batch").size();
        bytes.extend_from_slice(&first[..size]);
    };
    let faults = Partition::after("log", again);
    let ends = ["offset 100 stands where 111 is the least", "leader epoch 1 stands after epoch 2"];
    assert_eq!(faults.len(), 2, "{faults:?}");
    for (fault, end) in faults.iter().zip(ends) {
        assert!(fault.ends_with(end), "{fault}");
    }
}

#[test]
fn an_offset_index_that_points_elsewhere_is_found() {
    let faults = Partition::after("index", |_, bytes| bytes[7] += 1);
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].starts_with(&format!("FAULT {BASE:020}.index at position 0, offset 107")));
    assert!(faults[0].contains("no batch of the log begins at position"), "{faults:?}");
    let faults = Partition::after("index", |_, bytes| bytes[3] = 4);
    assert!(faults[0].contains("begins at offset 105"), "{faults:?}");
    let faults = Partition::after("index", |_, bytes| bytes.extend(entry(20, 90_000)));
    assert!(faults[0].contains("position 90000 is not in the log"), "{faults:?}");
    let faults = Partition::after("index", |_, bytes| bytes.extend_from_slice(&[1, 2, 3]));
    assert!(faults[0].contains("3 bytes are too few for an entry"), "{faults:?}");
}

#[test]
fn room_for_later_entries_is_no_fault() {
    for suffix in ["index", "timeindex"] {
        let faults = Partition::after(suffix, |_, bytes| bytes.resize(12 * 8 * 100, 0));
        assert_eq!(faults, [""; 0]);
    }
}

#[test]
fn a_time_index_that_lies_is_found() {
    let faults = Partition::after("timeindex", |_, bytes| bytes[12 + 7] += 1);
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].contains("claims timestamp 2003, the newest in the log is 2002 there"));
    let faults = Partition::after("timeindex", |_, bytes| {
        // 2002 and 2100 change places.
        bytes.swap(12 + 6, 24 + 6);
        bytes.swap(12 + 7, 24 + 7);
    });
    assert!(faults.iter().any(|fault| fault.contains("does not rise")), "{faults:?}");
}

#[test]
fn a_transaction_without_its_marker_is_found() {
    let faults = Partition::after("txnindex", |_, bytes| bytes[25] -= 1);
    assert!(faults[0].ends_with("no abort marker stands at this offset"), "{faults:?}");
    let faults = Partition::after("txnindex", |_, bytes| bytes[9] += 1);
    assert!(faults[0].ends_with("names producer 8, the abort marker is of 7"), "{faults:?}");
}

#[test]
fn epochs_that_contradict_the_log_or_themselves_are_found() {
    let partition = Partition::new();
    partition.write_as("leader-epoch-checkpoint", b"0\n2\n1 100\n2 110\n");
    let faults = partition.faults();
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].starts_with("FAULT leader-epoch-checkpoint, offset 108: says epoch 1"));
    partition.write_as("leader-epoch-checkpoint", b"0\n0\n");
    assert!(partition.faults()[0].contains("says no epoch for offset 100"));
    partition.write_as("leader-epoch-checkpoint", b"0\n2\n2 100\n1 108\n");
    assert!(partition.faults()[0].ends_with("epochs or offsets in it do not rise"));
    partition.write_as("leader-epoch-checkpoint", b"0\n2\n1 x\n2 110\n");
    assert!(partition.faults()[0].contains("line 3 \"1 x\": \"x\" is not a number"));
}

#[test]
fn epochs_below_the_log_s_start_may_be_forgotten() {
    let partition = Partition::new();
    partition.write_as("leader-epoch-checkpoint", b"0\n2\n1 103\n2 108\n");
    assert_eq!(partition.faults(), [""; 0]);
}

#[test]
fn broken_snapshots_and_ids_are_found() {
    let partition = Partition::new();
    partition.write_as("00000000000000000111.snapshot", &[0, 1, 9, 9, 9, 9, 0, 0, 0, 0]);
    partition.write_as("partition.metadata", b"version: 0\n");
    let faults = partition.faults();
    assert_eq!(faults.len(), 2, "{faults:?}");
    assert!(faults[0].contains("partition.metadata") && faults[1].contains("snapshot: CRC"));
}

#[test]
fn an_index_without_its_log_is_found() {
    let partition = Partition::new();
    partition.write_as("00000000000000000000.index", &[]);
    assert_eq!(partition.faults(), ["FAULT 00000000000000000000.index: its log is not there"]);
}

#[test]
fn one_file_is_compared_with_those_beside_it_which_are_not_shown() {
    let partition = Partition::new();
    partition.write("index", &entry(7, 1));
    let mut out = Vec::new();
    for (suffix, shown, hidden) in
        [("index", "offset 107 at", "offsets 100"), ("log", "offsets 100", "offset 107 at")]
    {
        out.clear();
        let paths = vec![partition.path(suffix)];
        let summary = dump(&Arguments { paths, ..Arguments::default() }, &mut out).expect("memory");
        assert_eq!(summary.faults, 1);
        let text = String::from_utf8_lossy(&out);
        assert!(text.contains(shown) && !text.contains(hidden), "{text}");
    }
}

#[test]
fn a_data_folder_is_looked_through_and_its_checkpoints_are_compared() {
    let partition = Partition::new();
    let data = tempfile::tempdir().expect("a folder");
    let folder = data.path().join("orders-0");
    fs::create_dir(&folder).expect("a folder");
    for file in fs::read_dir(partition.folder.path()).expect("a folder") {
        let file = file.expect("a file");
        fs::copy(file.path(), folder.join(file.file_name())).expect("a copy");
    }
    let checkpoint = data.path().join("recovery-point-offset-checkpoint");
    fs::write(&checkpoint, "0\n1\norders 0 111\n").expect("a file");
    assert_eq!(check(data.path()).first_faults, []);
    fs::write(&checkpoint, "0\n1\norders 0 112\n").expect("a file");
    let faults = check(data.path()).first_faults;
    assert!(faults[0].to_string().ends_with(
        "recovery-point-offset-checkpoint, offset 112: orders-0 ends at offset 111, before what is \
         said here"
    ));
    let empty = tempfile::tempdir().expect("a folder");
    let faults = check(empty.path()).first_faults;
    assert!(faults[0].what.contains("neither a data folder nor"), "{faults:?}");
}
