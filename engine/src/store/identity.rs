//! Who a data folder and a log belong to, and how the last owner left: `meta.properties`,
//! `partition.metadata` and `.kafka_cleanshutdown`, as Kafka writes them, and two files of ours: which
//! cluster's topics a data folder holds, and whether a flush has failed.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use wire::ids::{BrokerId, TopicId};

use super::checkpoint::{read_text, read_whole};
use super::damage::{Damage, DamageKind};
use super::names;
use crate::io::Disk;

const META_PROPERTIES: &str = "meta.properties";
const SOURCE: &str = "farspan-source.properties";
const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";
const FLUSH_FAILED: &str = "farspan-flush-failed";

/// What `meta.properties` says, in its version 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaProperties {
    pub cluster_id: String,
    pub node_id: BrokerId,
    /// Kafka gives every data folder an id; a folder from before 3.7 has none.
    pub directory_id: Option<TopicId>,
}

impl MetaProperties {
    /// Reads the file of a data folder, or `None` where nobody formatted it.
    pub fn read(disk: &mut dyn Disk, data: &Path) -> Result<Option<Self>, Damage> {
        let file = data.join(META_PROPERTIES);
        match read_text(disk, &file)? {
            Some(text) => Self::parse(&text, &file).map(Some),
            None => Ok(None),
        }
    }

    /// Reads the file's text.
    pub fn parse(text: &str, file: &Path) -> Result<Self, Damage> {
        let wrong = |line: usize, wrong: String| Damage {
            kind: DamageKind::Corrupt,
            file: file.to_path_buf(),
            position: Some(line as u64),
            wrong,
            remedy: "look whose folder this is; a new folder gets a new file",
        };
        let (mut cluster_id, mut node_id, mut directory_id, mut version) = (None, None, None, None);
        for (index, line) in text.lines().enumerate() {
            let Some((key, value)) = property(line) else { continue };
            match key.as_str() {
                "version" => version = Some(value),
                "cluster.id" => cluster_id = Some(value),
                "node.id" => match value.parse() {
                    Ok(id) => node_id = Some(BrokerId(id)),
                    Err(_) => return Err(wrong(index + 1, format!("{value:?} is no node id"))),
                },
                "directory.id" => match TopicId::parse(&value) {
                    Some(id) => directory_id = Some(id),
                    None => return Err(wrong(index + 1, format!("{value:?} is no directory id"))),
                },
                _ => {}
            }
        }
        if version.as_deref() != Some("1") {
            return Err(wrong(1, format!("version 1 is the only one known, not {version:?}")));
        }
        let (Some(cluster_id), Some(node_id)) = (cluster_id, node_id) else {
            return Err(wrong(1, "cluster.id and node.id must stand here".into()));
        };
        Ok(Self { cluster_id, node_id, directory_id })
    }

    /// Puts the file into a data folder, durably.
    pub fn write(&self, disk: &mut dyn Disk, data: &Path) -> Result<(), Damage> {
        let mut text = format!("node.id={}\n", self.node_id);
        if let Some(id) = self.directory_id {
            let _ = writeln!(text, "directory.id={id}");
        }
        let _ = writeln!(text, "version=1\ncluster.id={}", escaped(&self.cluster_id));
        Ok(disk.replace(&data.join(META_PROPERTIES), text.as_bytes())?)
    }
}

/// The cluster whose topics a data folder holds, by its id: another's offsets mean other records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceCluster {
    pub cluster_id: Arc<str>,
}

impl SourceCluster {
    /// The file that says it.
    #[must_use]
    pub fn file(data: &Path) -> PathBuf {
        data.join(SOURCE)
    }

    /// Reads what a data folder says, or `None` where no cluster was mirrored into it yet.
    pub fn read(disk: &mut dyn Disk, data: &Path) -> Result<Option<Self>, Damage> {
        let file = Self::file(data);
        let Some(text) = read_text(disk, &file)? else { return Ok(None) };
        let mut properties = text.lines().filter_map(property);
        let id = properties.find(|(key, _)| key == "cluster.id").map(|(_, id)| id);
        match id.filter(|id| !id.is_empty()) {
            Some(id) => Ok(Some(Self { cluster_id: id.into() })),
            None => Err(Damage {
                kind: DamageKind::Corrupt,
                file,
                position: None,
                wrong: "cluster.id must stand here".into(),
                remedy: "put the id of the source cluster there, as `cluster.id=ID`",
            }),
        }
    }

    /// Puts the file into a data folder, durably.
    pub fn write(&self, disk: &mut dyn Disk, data: &Path) -> Result<(), Damage> {
        let text = format!(
            "# The cluster whose topics this folder holds.\ncluster.id={}\n",
            escaped(&self.cluster_id)
        );
        Ok(disk.replace(&Self::file(data), text.as_bytes())?)
    }
}

/// One line of a Java properties file, as far as Kafka's own writer goes.
fn property(line: &str) -> Option<(String, String)> {
    let line = line.trim_start();
    if line.is_empty() || line.starts_with(['#', '!']) {
        return None;
    }
    let (mut key, mut value, mut in_value) = (String::new(), String::new(), false);
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let target = if in_value { &mut value } else { &mut key };
        match character {
            '\\' => target.extend(characters.next()),
            '=' | ':' if !in_value => in_value = true,
            _ => target.push(character),
        }
    }
    Some((key.trim_end().to_owned(), value.trim_start().to_owned()))
}

fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for character in value.chars() {
        if matches!(character, '=' | ':' | '#' | '!' | '\\') {
            text.push('\\');
        }
        text.push(character);
    }
    text
}

/// Reads the topic's id from a log's folder; `None` where the file is missing, as with folders of
/// Kafka before 2.8.
pub fn read_topic_id(disk: &mut dyn Disk, folder: &Path) -> Result<Option<TopicId>, Damage> {
    let file = folder.join(names::METADATA);
    let Some(text) = read_text(disk, &file)? else { return Ok(None) };
    let lines: Vec<_> = text.lines().collect();
    let damage = |line, wrong: String| Damage {
        kind: DamageKind::Corrupt,
        file: file.clone(),
        position: Some(line),
        wrong,
        remedy: super::damage::MIRROR_AGAIN,
    };
    if lines.first() != Some(&"version: 0") {
        return Err(damage(1, format!("\"version: 0\" must stand here, not {:?}", lines.first())));
    }
    let id = lines.get(1).and_then(|line| line.strip_prefix("topic_id: ")).and_then(TopicId::parse);
    match id {
        Some(id) => Ok(Some(id)),
        None => Err(damage(2, format!("\"topic_id: ID\" must stand here, not {:?}", lines.get(1)))),
    }
}

/// Puts the topic's id into a log's folder, durably.
pub fn write_topic_id(disk: &mut dyn Disk, folder: &Path, id: TopicId) -> Result<(), Damage> {
    let text = format!("version: 0\ntopic_id: {id}");
    Ok(disk.replace(&folder.join(names::METADATA), text.as_bytes())?)
}

/// The file that says that all logs of a data folder were closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanShutdown {
    /// The broker's epoch when it left, where it was in a cluster. Kafka's controller takes replicas
    /// whose epoch differs as unclean.
    pub broker_epoch: Option<i64>,
}

impl CleanShutdown {
    /// Takes the file away before logs are opened, so that a crash from here on is not clean. What
    /// it says inside does not decide whether the shutdown was clean, exactly as in Kafka.
    pub fn take(disk: &mut dyn Disk, data: &Path) -> Result<Option<Self>, Damage> {
        let file = data.join(CLEAN_SHUTDOWN);
        let Some(bytes) = read_whole(disk, &file, 64 << 10)? else { return Ok(None) };
        disk.remove(&file)?;
        disk.sync(data)?;
        let text = String::from_utf8_lossy(&bytes);
        Ok(Some(Self { broker_epoch: broker_epoch(&text) }))
    }

    /// Puts the file there once all logs are closed; -1 stands for no epoch.
    pub fn write(self, disk: &mut dyn Disk, data: &Path) -> Result<(), Damage> {
        let epoch = self.broker_epoch.unwrap_or(-1);
        let text = format!("{{\"version\":0,\"brokerEpoch\":{epoch}}}");
        Ok(disk.replace(&data.join(CLEAN_SHUTDOWN), text.as_bytes())?)
    }
}

/// The file that says that a flush has failed since the last clean stop. The process that it failed for
/// may end before it has written the bytes again, and the next one is not told by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushFailed;

impl FlushFailed {
    /// The file.
    #[must_use]
    pub fn file(data: &Path) -> PathBuf {
        data.join(FLUSH_FAILED)
    }

    /// Whether the file is there.
    pub fn is_marked(disk: &mut dyn Disk, data: &Path) -> Result<bool, Damage> {
        Ok(read_whole(disk, &Self::file(data), 64 << 10)?.is_some())
    }

    /// Puts the file there, durably.
    pub fn mark(disk: &mut dyn Disk, data: &Path) -> Result<(), Damage> {
        let text = "A flush has failed: after an unclean stop what is not known to be on disk is \
                    written again.\n";
        Ok(disk.replace(&Self::file(data), text.as_bytes())?)
    }

    /// Takes it away once all logs are closed.
    pub fn clear(disk: &mut dyn Disk, data: &Path) -> Result<(), Damage> {
        if Self::is_marked(disk, data)? {
            disk.remove(&Self::file(data))?;
            disk.sync(data)?;
        }
        Ok(())
    }
}

/// The number of `brokerEpoch` in a JSON object of numbers.
fn broker_epoch(text: &str) -> Option<i64> {
    let (_, after) = text.split_once("\"brokerEpoch\"")?;
    let value = after.trim_start().strip_prefix(':')?.trim_start();
    let end = value.find(|c: char| c != '-' && !c.is_ascii_digit()).unwrap_or(value.len());
    value[..end].parse().ok().filter(|&epoch| epoch >= 0)
}

#[cfg(test)]
mod tests {
    use super::super::testing::MemoryDisk;
    use super::*;

    /// As a broker of Kafka 4.4 wrote it.
    const BY_KAFKA: &str = "#\n#Mon Nov 30 21:06:59 UTC 2026\nnode.id=1\n\
        directory.id=MzW_qJo9EbCdFoS9nszNvw\nversion=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAQ\n";

    #[test]
    fn reads_what_kafka_wrote_and_writes_what_kafka_reads() {
        let read = MetaProperties::parse(BY_KAFKA, Path::new("m")).expect("Kafka's own");
        assert_eq!(read.node_id, BrokerId(1));
        assert_eq!(read.cluster_id, "AAAAAAAAAAAAAAAAAAAAAQ");
        let mut disk = MemoryDisk::default();
        let data = Path::new("/d");
        assert_eq!(MetaProperties::read(&mut disk, data), Ok(None));
        read.write(&mut disk, data).expect("memory");
        assert_eq!(MetaProperties::read(&mut disk, data), Ok(Some(read)));
    }

    #[test]
    fn a_value_with_the_characters_that_java_escapes_comes_back() {
        let meta = MetaProperties {
            cluster_id: "a:b=c#d!e".into(),
            node_id: BrokerId(5),
            directory_id: None,
        };
        let mut disk = MemoryDisk::default();
        meta.write(&mut disk, Path::new("/d")).expect("memory");
        let text = String::from_utf8(disk.bytes(Path::new("/d/meta.properties"))).expect("text");
        assert_eq!(text, "node.id=5\nversion=1\ncluster.id=a\\:b\\=c\\#d\\!e\n");
        assert_eq!(MetaProperties::read(&mut disk, Path::new("/d")), Ok(Some(meta)));
    }

    #[test]
    fn a_folder_says_whose_topics_it_holds() {
        let (mut disk, data) = (MemoryDisk::default(), Path::new("/d"));
        assert_eq!(SourceCluster::read(&mut disk, data), Ok(None));
        let source = SourceCluster { cluster_id: "a:b".into() };
        source.write(&mut disk, data).expect("memory");
        assert_eq!(SourceCluster::read(&mut disk, data), Ok(Some(source)));
        disk.replace(&SourceCluster::file(data), b"cluster.id=\n").expect("memory");
        let damage = SourceCluster::read(&mut disk, data).expect_err("no id");
        assert!(damage.to_string().contains("cluster.id"), "{damage}");
    }

    #[test]
    fn a_folder_of_an_older_format_is_refused_by_name() {
        let damage = MetaProperties::parse("version=0\nbroker.id=1\n", Path::new("m"));
        assert!(damage.expect_err("version 0").to_string().contains("version 1"));
    }

    #[test]
    fn a_clean_shutdown_is_taken_once() {
        let mut disk = MemoryDisk::default();
        let data = Path::new("/d");
        assert_eq!(CleanShutdown::take(&mut disk, data), Ok(None));
        for (broker_epoch, text) in [
            (Some(11), "{\"version\":0,\"brokerEpoch\":11}"),
            (None, "{\"version\":0,\"brokerEpoch\":-1}"),
        ] {
            let clean = CleanShutdown { broker_epoch };
            clean.write(&mut disk, data).expect("memory");
            assert_eq!(disk.bytes(Path::new("/d/.kafka_cleanshutdown")), text.as_bytes());
            assert_eq!(CleanShutdown::take(&mut disk, data), Ok(Some(clean)));
            assert_eq!(CleanShutdown::take(&mut disk, data), Ok(None));
        }
    }

    #[test]
    fn a_topic_id_is_kept_as_kafka_keeps_it() {
        let mut disk = MemoryDisk::default();
        let folder = Path::new("/d/t-0");
        assert_eq!(read_topic_id(&mut disk, folder), Ok(None));
        let id = TopicId([7; 16]);
        write_topic_id(&mut disk, folder, id).expect("memory");
        let text = disk.bytes(&folder.join("partition.metadata"));
        assert_eq!(text, format!("version: 0\ntopic_id: {id}").as_bytes());
        assert_eq!(read_topic_id(&mut disk, folder), Ok(Some(id)));
        disk.replace(&folder.join("partition.metadata"), b"version: 0\nid").expect("memory");
        assert!(read_topic_id(&mut disk, folder).is_err());
    }
}
