//! Kafka's jars from Maven, once per machine, and our Java client compiled against them.
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::process::tied;

/// Clients and tools of this version speak with every broker we test.
pub const CLIENTS_VERSION: &str = "4.4.0";

/// The newest version of MirrorMaker 2 that Maven serves.
pub const MIRROR_MAKER_VERSION: &str = "4.3.1";

/// Keeps a short-lived JVM short: no optimizing compiler, one thread of garbage collection.
pub const QUICK_JVM: [&str; 3] = ["-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"];

const JAVA_SOURCES: [(&str, &str); 8] = [
    ("Arguments.java", include_str!("../../java/Arguments.java")),
    ("Filler.java", include_str!("../../java/Filler.java")),
    ("Produce.java", include_str!("../../java/Produce.java")),
    ("Read.java", include_str!("../../java/Read.java")),
    ("Stream.java", include_str!("../../java/Stream.java")),
    ("Topics.java", include_str!("../../java/Topics.java")),
    ("Transactions.java", include_str!("../../java/Transactions.java")),
    ("Workload.java", include_str!("../../java/Workload.java")),
];

/// A folder of jars of one Kafka version.
#[derive(Clone, Debug)]
pub struct Installation {
    version: String,
    folder: PathBuf,
}

impl Installation {
    /// Brokers, clients and tools of `version`, for instance `4.4.0`; installed when not there yet.
    pub fn get(version: &str) -> Result<Installation, String> {
        let mut artifacts = vec![format!("org.apache.kafka:kafka_2.13:{version}")];
        if major_minor(version)? >= (3, 5) {
            artifacts.push(format!("org.apache.kafka:kafka-tools:{version}"));
        }
        Installation::named(version, version, &artifacts)
    }

    /// The clients of [`CLIENTS_VERSION`], used against every broker.
    pub fn clients() -> Result<Installation, String> {
        Installation::get(CLIENTS_VERSION)
    }

    /// MirrorMaker 2, main class `org.apache.kafka.connect.mirror.MirrorMaker`.
    pub fn mirror_maker() -> Result<Installation, String> {
        let version = MIRROR_MAKER_VERSION;
        let artifacts = ["connect-mirror", "connect-runtime"]
            .map(|artifact| format!("org.apache.kafka:{artifact}:{version}"));
        Installation::named(&format!("mirror-maker-{version}"), version, &artifacts)
    }

    fn named(name: &str, version: &str, artifacts: &[String]) -> Result<Installation, String> {
        let folder = once(name, |folder| download(folder, artifacts))?;
        Ok(Installation { version: version.to_owned(), folder })
    }

    pub fn version(&self) -> &str {
        &self.version
    }

    /// Whether brokers of this version need a ZooKeeper beside them.
    pub fn needs_zookeeper(&self) -> bool {
        // KRaft was a preview without transactions before 3.3.
        major_minor(&self.version).is_ok_and(|version| version < (3, 3))
    }

    pub fn libs(&self) -> PathBuf {
        self.folder.join("libs")
    }

    /// `java` with the jars on the class path, tied to our life; the main class comes next.
    pub fn java(&self, jvm: &[&str]) -> Command {
        self.java_with(jvm, None)
    }

    fn java_with(&self, jvm: &[&str], classes: Option<&Path>) -> Command {
        let mut class_path = self.libs().join("*").into_os_string();
        if let Some(classes) = classes {
            class_path.push(":");
            class_path.push(classes);
        }
        let mut command = tied("java");
        command.args(jvm).arg("-cp").arg(class_path);
        command
    }

    /// A quick tool of Kafka's: errors only on stderr, the main class already given.
    pub fn tool(&self, main_class: &str) -> Command {
        let mut command = self.java(&QUICK_JVM);
        command.arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=error").arg(main_class);
        command
    }

    /// The first of these classes that is in one of the jars: tools move between packages.
    pub fn first_class(&self, candidates: &[&str]) -> Result<String, String> {
        for candidate in candidates {
            let entry = format!("{}.class", candidate.replace('.', "/"));
            for jar in list(&self.libs())? {
                let name = jar.file_name().unwrap_or_default().to_string_lossy().into_owned();
                // Names stand uncompressed in the directory at a jar's end.
                if name.starts_with("kafka")
                    && fs::read(&jar).is_ok_and(|bytes| contains(&bytes, entry.as_bytes()))
                {
                    return Ok((*candidate).to_owned());
                }
            }
        }
        Err(format!("Kafka {} has none of the classes {candidates:?}", self.version))
    }

    /// `java` ready to run our own client (`Workload`), compiled when the sources have changed.
    pub fn workload(&self) -> Result<Command, String> {
        let mut sources = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme);
        for (name, text) in JAVA_SOURCES {
            sources.update(name.as_bytes());
            sources.update(text.as_bytes());
        }
        let name = format!("workload-{}-{:016x}", self.version, sources.finalize());
        let classes = once(&name, |folder| compile(folder, &self.libs()))?;
        let mut command = self.java_with(&["-Xmx512m", "-XX:+UseSerialGC"], Some(&classes));
        command.arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=error").arg("Workload");
        Ok(command)
    }
}

/// Where everything that is fetched or compiled once is kept.
pub fn home() -> PathBuf {
    if let Some(home) = std::env::var_os("FARSPAN_KAFKA_HOME") {
        return PathBuf::from(home);
    }
    // Cargo marks its target folder; the test program lies somewhere below it.
    let program = std::env::current_exe().unwrap_or_default();
    let target = program.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file());
    target.map_or_else(std::env::temp_dir, Path::to_path_buf).join("farspan-kafka")
}

/// The folder `name` in [`home`], filled by `fill` when it is not there. Test processes may race:
/// one fills, the others wait, and a folder that is there is whole.
pub fn once(name: &str, fill: impl FnOnce(&Path) -> Result<(), String>) -> Result<PathBuf, String> {
    once_in(&home(), name, fill)
}

fn once_in(
    home: &Path,
    name: &str,
    fill: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    let folder = home.join(name);
    if folder.is_dir() {
        return Ok(folder);
    }
    let io = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(home).map_err(io)?;
    let lock = File::create(home.join(format!("{name}.lock"))).map_err(io)?;
    lock.lock().map_err(io)?;
    if folder.is_dir() {
        return Ok(folder);
    }
    let unfinished = home.join(format!("{name}.unfinished"));
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).map_err(io)?;
    }
    fs::create_dir_all(&unfinished).map_err(io)?;
    fill(&unfinished)?;
    fs::rename(&unfinished, &folder).map_err(io)?;
    Ok(folder)
}

/// Runs to the end; a failure is one line: what was run and the first thing it complained about.
pub fn run(what: &str, command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            format!("{what}: {} is missing", command.get_program().to_string_lossy())
        }
        _ => format!("{what}: {error}"),
    })?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let mut lines = text.lines().chain(errors.lines()).filter(|line| !line.trim().is_empty());
    let all: Vec<&str> = lines.by_ref().collect();
    let first = all.iter().find(|line| line.to_lowercase().contains("error")).or(all.first());
    Err(format!("{what}: {}", first.unwrap_or(&"failed without a word").trim()))
}

fn download(folder: &Path, artifacts: &[String]) -> Result<(), String> {
    require("java", "a Java runtime of version 17 or newer")?;
    require("mvn", "Apache Maven")?;
    let pom = folder.join("pom.xml");
    fs::write(&pom, pom_xml(artifacts)).map_err(|e| format!("{}: {e}", pom.display()))?;
    let mut mvn = Command::new("mvn");
    mvn.args(["-q", "-B", "-Dstyle.color=never", "-f"]).arg(&pom);
    mvn.arg("dependency:copy-dependencies");
    mvn.arg(format!("-DoutputDirectory={}", folder.join("libs").display()));
    // Two loggers on one class path argue at every start; ours writes to stderr.
    mvn.arg("-DexcludeArtifactIds=slf4j-reload4j,slf4j-log4j12,log4j-slf4j-impl");
    run(&format!("mvn cannot fetch {}", artifacts.join(" ")), &mut mvn).map(|_| ())
}

fn pom_xml(artifacts: &[String]) -> String {
    let logger = "org.slf4j:slf4j-simple:1.7.36".to_owned();
    let mut dependencies = String::new();
    for artifact in artifacts.iter().chain([&logger]) {
        let mut parts = artifact.split(':');
        let mut part = || parts.next().unwrap_or_default();
        dependencies += &format!(
            "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>\n",
            part(),
            part(),
            part()
        );
    }
    format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\n\
         <groupId>farspan</groupId><artifactId>jars</artifactId><version>1</version>\n\
         <packaging>pom</packaging><dependencies>\n{dependencies}</dependencies></project>\n"
    )
}

fn compile(folder: &Path, libs: &Path) -> Result<(), String> {
    require("javac", "a Java development kit of version 17 or newer")?;
    let mut javac = Command::new("javac");
    javac.args(["-encoding", "UTF-8", "-cp"]).arg(libs.join("*")).arg("-d").arg(folder);
    for (name, text) in JAVA_SOURCES {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        javac.arg(path);
    }
    run("javac cannot compile the workload", &mut javac).map(|_| ())
}

/// `-version`, because that is what all three answer.
fn require(program: &str, what: &str) -> Result<(), String> {
    let status = Command::new(program)
        .arg("-version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        _ => Err(format!("{program} is missing: real Kafka needs {what}")),
    }
}

fn major_minor(version: &str) -> Result<(u32, u32), String> {
    let mut numbers = version.split('.').map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor)),
        _ => Err(format!("{version} is no version of Kafka")),
    }
}

fn list(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_version_that_is_none_is_refused_in_one_line() {
        assert_eq!(Installation::get("newest").unwrap_err(), "newest is no version of Kafka");
    }

    #[test]
    fn of_many_who_race_for_a_folder_one_fills_it_and_a_failure_leaves_none() {
        let home = tempfile::tempdir().unwrap();
        let failed = once_in(home.path(), "jars", |_| Err("no network".to_owned()));
        assert_eq!(failed.unwrap_err(), "no network");
        let filled = AtomicU32::new(0);
        let fill = |folder: &Path| {
            filled.fetch_add(1, Ordering::Relaxed);
            fs::write(folder.join("a.jar"), "whole").map_err(|e| e.to_string())
        };
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let folder = once_in(home.path(), "jars", fill).unwrap();
                    assert_eq!(fs::read(folder.join("a.jar")).unwrap(), b"whole");
                });
            }
        });
        assert_eq!(filled.into_inner(), 1);
    }

    #[test]
    fn a_pom_names_every_artifact_and_one_logger() {
        let pom = pom_xml(&["a.b:c:1".to_owned()]);
        assert!(
            pom.contains("<groupId>a.b</groupId><artifactId>c</artifactId><version>1</version>")
        );
        assert_eq!(pom.matches("<dependency>").count(), 2);
    }
}
