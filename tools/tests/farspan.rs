//! The program as people run it: what it prints, and how it ends.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tools::client::{Client, Settings};
use tools::synthetic::serve::{Running, serve};
use tools::synthetic::{Cluster, NewBatch, Settings as ClusterSettings};

fn farspan(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_farspan")).args(arguments).output().expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/golden").join(name)
}

#[test]
fn help_names_every_subcommand_and_every_flag_says_what_it_is_for() {
    let help = farspan(&["--help"]);
    assert!(help.status.success());
    for subcommand in ["mirror", "serve", "dump", "demo"] {
        assert!(text(&help.stdout).contains(&format!("  {subcommand} ")), "{subcommand}");
        let help = farspan(&[subcommand, "--help"]);
        assert!(help.status.success());
        assert!(text(&help.stdout).contains("Exit codes: "), "{subcommand}");
    }
    let help = text(&farspan(&["mirror", "--help"]).stdout);
    for flag in ["--from", "--topics", "--data", "--listen", "--retention-ms", "--config"] {
        assert!(help.contains(flag), "{flag}");
    }
    assert!(!text(&farspan(&["serve", "--help"]).stdout).contains("--from"));
}

#[test]
fn mistakes_end_with_code_2_and_are_all_told() {
    let output = farspan(&["mirror", "--listen", "x", "--shards", "0"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        text(&output.stderr),
        "farspan: --data: is missing: say in which folder the topics are kept\n\
         farspan: --listen \"x\": must be HOST:PORT, such as broker-1:9092 or [::1]:9092\n\
         farspan: --shards \"0\": must be a number from 1 to 256\n\
         farspan: --from: is missing: say where the source cluster is, as HOST:PORT\n\
         farspan: --topics: is missing: say which topics to mirror, '.*' for all\n"
    );
    for arguments in [
        &["mirror", "--lisen", "x"][..],
        &["fly"],
        &[],
        &["dump", "/nowhere"],
        &["dump", "/dev/zero"],
    ] {
        assert_eq!(farspan(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn dump_reads_what_a_broker_wrote() {
    let mut records = 0;
    for name in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let path = golden(&format!("{name}.log"));
        let output = farspan(&["dump", "--records", &path.to_string_lossy()]);
        let shown = text(&output.stdout);
        assert!(output.status.success(), "{shown}");
        records += shown.lines().filter(|line| line.starts_with("    offset ")).count();
        assert!(
            shown.contains("key \"key-1\" value \"value value value value 1\" header \"h\"=\"x\"")
        );
        assert!(shown.contains(" header \"n\"=null"), "{shown}");
        assert!(shown.contains(": no fault"), "{shown}");
    }
    assert_eq!(records, 25);
    let path = golden("transactions.log");
    let shown = text(&farspan(&["dump", &path.to_string_lossy()]).stdout);
    for marker in ["control commit coordinator epoch", "control abort coordinator epoch"] {
        assert!(shown.contains(marker), "{shown}");
    }
}

#[test]
fn dump_ends_with_code_1_and_names_the_place_of_a_flipped_byte() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("00000000000000000000.log");
    let mut bytes = std::fs::read(golden("lz4.log")).expect("golden bytes");
    let second = wire::batch::Batch::read(&bytes, 0).expect("a batch").size();
    *bytes.last_mut().expect("not empty") ^= 1;
    std::fs::write(&path, &bytes).expect("a file");
    let output = farspan(&["dump", "--quiet", &path.to_string_lossy()]);
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stdout);
    let place = format!("FAULT {} at position {second}, offset 4: CRC ", path.display());
    assert!(shown.starts_with(&place), "{shown}");
    let output = farspan(&["dump", "--json", &path.to_string_lossy()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("\"type\":\"fault\""));
}

#[test]
fn demo_proves_that_both_sides_are_equal() {
    let output = farspan(&["demo"]);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{shown}{}", text(&output.stderr));
    assert!(shown.trim_end().ends_with("15 of 15 partitions are equal byte for byte"), "{shown}");
}

/// A source with a topic, and a folder for its mirror.
struct World {
    source: Running,
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        Self::of(ClusterSettings::default())
    }

    fn of(settings: ClusterSettings) -> Self {
        let mut cluster = Cluster::new(settings);
        cluster.create_topic("orders", 2);
        for seed in 0..20 {
            cluster.partition("orders", 0).append(&NewBatch::filled(10, 50, 0, seed));
        }
        let folder = tempfile::tempdir().expect("a folder");
        Self { source: serve(cluster).expect("sockets"), folder }
    }

    fn start(&self, subcommand: &str, more: &[&str]) -> Process {
        let data = self.folder.path().to_string_lossy();
        let mut command = Command::new(env!("CARGO_BIN_EXE_farspan"));
        command.args([subcommand, "--data", &*data, "--listen", "127.0.0.1:0", "--shards", "1"]);
        Process::start(command.args(more))
    }

    fn mirror(&self) -> Process {
        self.start("mirror", &["--from", &self.source.bootstrap(), "--topics", "orders"])
    }
}

/// The program, running, with its log.
struct Process {
    child: Child,
    log: BufReader<std::process::ChildStderr>,
    told: String,
}

impl Process {
    fn start(command: &mut Command) -> Self {
        let mut child = command
            .env_remove("RUST_LOG")
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let log = BufReader::new(child.stderr.take().expect("it is piped"));
        Self { child, log, told: String::new() }
    }

    /// Waits for a log line with `wanted` in it.
    fn wait_for(&mut self, wanted: &str) -> String {
        let mut line = String::new();
        while self.log.read_line(&mut line).expect("text") > 0 {
            self.told.push_str(&line);
            if line.contains(wanted) {
                return line;
            }
            line.clear();
        }
        panic!("{wanted:?} was not told:\n{}", self.told);
    }

    /// Waits until Kafka clients are served; gives the address.
    fn address(&mut self) -> String {
        let line = self.wait_for("Kafka clients are served on ");
        let (_, rest) = line.split_once("served on ").expect("it was waited for");
        rest.split(' ').next().expect("an address").to_string()
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status().expect("kill runs");
        assert!(sent.success());
    }

    /// Waits until each of its threads is stopped: the signal reaches them one by one.
    fn await_standstill(&self) {
        let tasks = format!("/proc/{}/task", self.child.id());
        let is_stopped = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat"));
            // The state follows the name, which stands in brackets.
            stat.is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|at| at.starts_with('T')))
        };
        while !std::fs::read_dir(&tasks).expect("it runs").flatten().all(is_stopped) {
            std::thread::yield_now();
        }
    }

    fn code(&mut self) -> Option<i32> {
        self.child.wait().expect("it is ours").code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended already, where all went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_mirror_stops_cleanly_on_a_signal_and_what_it_has_is_served_without_a_source() {
    let world = World::new();
    let theirs = Client::new(&world.source.bootstrap(), Settings::default())
        .digests(Some(&["orders"]))
        .expect("the source is read");
    let mut mirror = world.mirror();
    mirror.address();
    if !mirror.wait_for("mirroring 2/2").contains("caught up") {
        mirror.wait_for("caught up");
    }
    mirror.signal("-TERM");
    mirror.wait_for("stopped, all logs are closed");
    assert_eq!(mirror.code(), Some(0));

    let mut server = world.start("serve", &[]);
    let address = server.address();
    let ours = Client::new(&address, Settings::default()).digests(None).expect("it is served");
    assert_eq!(ours, theirs);
    server.signal("-INT");
    assert_eq!(server.code(), Some(0));
    let summary = tools::command::dump::check(world.folder.path());
    assert_eq!((summary.first_faults, summary.partitions), (vec![], 2));
}

#[test]
fn a_second_signal_ends_at_once_with_code_130() {
    let world = World::new();
    let mut mirror = world.mirror();
    mirror.address();
    // Both are waiting when it goes on.
    mirror.signal("-STOP");
    mirror.await_standstill();
    for signal in ["-TERM", "-INT", "-CONT"] {
        mirror.signal(signal);
    }
    assert_eq!(mirror.code(), Some(130));
}

#[test]
fn two_programs_do_not_share_a_folder() {
    let world = World::new();
    let mut mirror = world.mirror();
    mirror.address();
    let mut other = world.start("serve", &[]);
    other.wait_for("another process uses this data folder");
    assert_eq!(other.code(), Some(1));
    mirror.signal("-TERM");
    assert_eq!(mirror.code(), Some(0));
}

#[test]
fn listening_for_everybody_is_warned_of() {
    let world = World::new();
    let mut server = Command::new(env!("CARGO_BIN_EXE_farspan"));
    let data = world.folder.path().to_string_lossy();
    server.args(["mirror", "--data", &data, "--listen", "0.0.0.0:0", "--shards", "1"]);
    server.args(["--from", &world.source.bootstrap(), "--topics", "orders"]);
    let mut server = Process::start(server.args(["--advertised", "localhost:9092"]));
    server.wait_for("whoever reaches 0.0.0.0:0 reads every topic, and nothing is encrypted");
    server.address();
    server.signal("-TERM");
    assert_eq!(server.code(), Some(0));
}

#[test]
fn a_folder_is_the_mirror_of_one_cluster() {
    let [world, other] =
        [1, 2].map(|seed| World::of(ClusterSettings { seed, ..ClusterSettings::default() }));
    let [id, other_id] =
        [&world, &other].map(|world| world.source.with(|cluster| cluster.cluster_id().to_string()));
    let stop = |mut mirror: Process| {
        mirror.signal("-TERM");
        assert_eq!(mirror.code(), Some(0));
    };
    let mut mirror = world.mirror();
    mirror.wait_for(&format!("mirrors cluster {id}, and no other"));
    mirror.wait_for("caught up");
    stop(mirror);

    let from_other = ["--from", &other.source.bootstrap(), "--topics", "orders"];
    let mut mirror = world.start("mirror", &from_other);
    mirror.wait_for(&format!("it belongs to cluster {other_id}, and what is here is a mirror of"));
    mirror.wait_for("SOURCE LOST, no broker can be used");
    stop(mirror);
    let named = [&from_other[..], &["--cluster-id", &other_id]].concat();
    let mut mirror = world.start("mirror", &named);
    mirror.wait_for(&format!("holds topics of cluster {id}, not of {other_id}"));
    assert_eq!(mirror.code(), Some(1));

    let mut mirror = world.mirror();
    mirror.wait_for("caught up");
    stop(mirror);
}

/// A folder that has lost the file was given to whichever cluster answered first.
#[test]
fn topics_that_do_not_say_whose_they_are_are_not_given_to_another_cluster() {
    let [world, other] =
        [1, 2].map(|seed| World::of(ClusterSettings { seed, ..ClusterSettings::default() }));
    let mut mirror = world.mirror();
    mirror.wait_for("caught up");
    mirror.signal("-TERM");
    assert_eq!(mirror.code(), Some(0));
    let file = world.folder.path().join("farspan-source.properties");
    std::fs::remove_file(&file).expect("it was there");
    let from_other = ["--from", &other.source.bootstrap(), "--topics", "orders"];
    let mut mirror = world.start("mirror", &from_other);
    mirror.wait_for("the data folder does not say whose they are");
    mirror.wait_for("SOURCE LOST, no broker can be used");
    mirror.signal("-TERM");
    assert_eq!(mirror.code(), Some(0));
    assert!(!file.exists());
    let mut mirror = world.mirror();
    mirror.wait_for("caught up");
    assert!(file.exists());
}

/// Both a shell and the kernel send SIGHUP when a terminal is closed.
#[test]
fn a_closed_terminal_is_one_wish_to_stop() {
    let world = World::new();
    let mut mirror = world.mirror();
    mirror.address();
    mirror.signal("-STOP");
    mirror.await_standstill();
    for signal in ["-TERM", "-HUP", "-CONT"] {
        mirror.signal(signal);
    }
    mirror.wait_for("stopped, all logs are closed");
    assert_eq!(mirror.code(), Some(0));
}

#[test]
fn nothing_is_mirrored_before_its_source_is_written_down() {
    let world = World::new();
    let in_the_way = world.folder.path().join("farspan-source.properties.tmp");
    let mut mirror = world.mirror();
    mirror.wait_for("caught up");
    mirror.signal("-TERM");
    assert_eq!(mirror.code(), Some(0));
    for name in ["farspan-source.properties", "orders-0", "orders-1"] {
        let path = world.folder.path().join(name);
        let _ = std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir_all(&path));
    }
    std::fs::create_dir(&in_the_way).expect("made");
    let mut mirror = world.mirror();
    mirror.wait_for("nothing is mirrored yet");
    assert!(!world.folder.path().join("orders-0").exists());
    std::fs::remove_dir(&in_the_way).expect("it is empty");
    mirror.wait_for("and no other from now on");
    mirror.wait_for("mirroring 2/2");
}

#[test]
fn a_folder_that_is_not_ours_stays_as_it_is() {
    let world = World::new();
    let path = world.folder.path();
    std::fs::write(path.join("thesis.txt"), "years of work").expect("written");
    let mut mirror = world.mirror();
    mirror.wait_for("holds thesis.txt but no meta.properties");
    assert_eq!(mirror.code(), Some(1));
    assert_eq!(std::fs::read_dir(path).expect("it is there").count(), 1);

    let missing = path.join("typo");
    let output =
        farspan(&["serve", "--data", &missing.to_string_lossy(), "--listen", "127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("is --data right?"), "{}", text(&output.stderr));
    assert!(!missing.exists());
}

#[test]
fn a_partition_whose_topic_id_cannot_be_read_is_left_out_alone() {
    let world = World::new();
    let stop = |mut mirror: Process| {
        mirror.signal("-TERM");
        assert_eq!(mirror.code(), Some(0));
    };
    let mut mirror = world.mirror();
    mirror.wait_for("caught up");
    stop(mirror);
    let id = world.folder.path().join("orders-0/partition.metadata");
    let right = std::fs::read(&id).expect("it is there");
    for (wrong, told) in [
        ("nothing of the kind", "partition orders-0 is left out"),
        ("version: 0\ntopic_id: AQEBAQEBAQEBAQEBAQEBAQ", "partition orders-1 is left out"),
    ] {
        std::fs::write(&id, wrong).expect("written");
        let mut mirror = world.mirror();
        mirror.wait_for(told);
        mirror.address();
        mirror.signal("-TERM");
        mirror.code();
    }
    std::fs::write(&id, &right).expect("written");
    let mut mirror = world.mirror();
    mirror.wait_for("mirroring 2/2");
    stop(mirror);
}

#[test]
fn a_copy_of_a_topic_in_the_same_folder_is_named() {
    let world = World::new();
    let mut mirror = world.mirror();
    mirror.wait_for("caught up");
    mirror.signal("-TERM");
    assert_eq!(mirror.code(), Some(0));
    let [from, to] = ["orders-0", "backup-0"].map(|name| world.folder.path().join(name));
    std::fs::create_dir(&to).expect("made");
    std::fs::copy(from.join("partition.metadata"), to.join("partition.metadata")).expect("copied");
    let mut mirror = world.mirror();
    mirror.wait_for("topics backup and orders have the same id");
    assert_eq!(mirror.code(), Some(1));
}

/// A broker's log.dir while the broker runs: Java's lock is of another kind than the one that keeps other
/// nodes out, and the broker's files were changed under it.
#[test]
fn a_folder_that_a_java_process_has_locked_is_refused() {
    let world = World::new();
    let lock = world.folder.path().join(".lock");
    std::fs::write(&lock, "").expect("written");
    // What FileChannel.tryLock does.
    let holds = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); \
                 print('locked', flush=True); sys.stdin.read()";
    let mut holder = Command::new("python3")
        .args(["-c", holds, &lock.to_string_lossy()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python runs");
    let mut told = String::new();
    let out = holder.stdout.take().expect("it is piped");
    BufReader::new(out).read_line(&mut told).expect("text");
    assert_eq!(told, "locked\n");
    let mut mirror = world.mirror();
    mirror.wait_for("another process uses this data folder, farspan or a Kafka broker");
    assert_eq!(mirror.code(), Some(1));
    drop(holder.stdin.take());
    holder.wait().expect("it is ours");
}
