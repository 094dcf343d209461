//! The house keeps its stairs: no room imports another on its floor or above it, `unsafe` and the
//! system live in one room, and no file grows beyond what a person reads in one sitting.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The rooms of the engine from the ground up, and what else each may import besides what is below.
/// A room is a file or a folder of `engine/src`. Rooms on one floor have no doors to each other.
const FLOORS: &[(u8, &[&str])] = &[
    (1, &["ids", "io", "limits", "admitted", "catalog", "compression", "metrics"]),
    (2, &["source", "serve", "mirror"]),
    (3, &["store"]),
    (4, &["ring"]),
    (5, &["shard"]),
    (6, &["desk"]),
    (7, &["config", "folder"]),
    (8, &["node"]),
];

/// Stairs that are shut although they lead down.
const SHUT: &[(&str, &str, &str)] = &[
    ("shard", "ring", "a shard sees the world only through the trait Io"),
    ("desk", "ring", "the desk is given its disk"),
    ("store", "source", "a log does not know where its bytes come from"),
    ("store", "serve", "a log does not know who reads it"),
    ("store", "mirror", "a log does not know why it grows"),
    ("ring", "source", "the ring knows no Kafka"),
    ("ring", "serve", "the ring knows no Kafka"),
    ("ring", "mirror", "the ring knows no Kafka"),
    ("ring", "store", "the ring knows no Kafka"),
    ("ring", "catalog", "the ring knows no Kafka"),
];

/// Doors on one floor that are open on purpose.
const OPEN: &[(&str, &str, &str)] = &[];

/// What only one room may use, and which.
const SYSTEM: &[(&str, &[&str])] = &[
    ("std::net::TcpStream", &["ring"]),
    ("std::net::TcpListener", &["ring", "desk", "node"]),
    ("std::fs", &["ring", "node", "folder"]),
    ("std::thread", &["ring", "node", "config"]),
    ("Instant::now", &["ring"]),
    ("SystemTime", &["ring"]),
    ("io_uring::", &["ring"]),
    ("libc::", &["ring"]),
    ("tokio::", &["desk", "node"]),
];

const LINES_MAX: usize = 800;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_path_buf()
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(folder).expect("a folder of sources");
    for entry in entries.map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() {
            found.extend(sources(&entry));
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            found.push(entry);
        }
    }
    found.sort();
    found
}

/// The sources of the engine with the room that each belongs to. Unit tests stand in whichever room
/// they test and may use what they need: they are cut off.
fn engine_sources() -> Vec<(String, PathBuf, String)> {
    let engine = root().join("engine/src");
    let mut all = Vec::new();
    for path in sources(&engine) {
        let inside = path.strip_prefix(&engine).expect("below the folder");
        let room = inside.components().next().expect("a name").as_os_str().to_string_lossy();
        let room = room.trim_end_matches(".rs").to_string();
        let is_test = inside.iter().any(|part| part.to_string_lossy().contains("test"));
        if room == "lib" || is_test {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a source");
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let code: String = code
            .lines()
            .map(|line| line.split("//").next().unwrap_or_default())
            .collect::<Vec<_>>()
            .join("\n");
        all.push((room, path.clone(), code));
    }
    all
}

fn floor_of(room: &str) -> Option<u8> {
    FLOORS.iter().find(|(_, rooms)| rooms.contains(&room)).map(|&(floor, _)| floor)
}

/// The rooms that a piece of code names after `crate::`, also within braces.
fn imports(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (position, _) in code.match_indices("crate::") {
        let before = code[..position].chars().last();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        let rest = &code[position + "crate::".len()..];
        let name = |text: &str| -> String {
            text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
        };
        match rest.strip_prefix('{') {
            Some(group) => {
                let group = group.split('}').next().unwrap_or_default();
                found.extend(group.split(',').map(name));
            }
            None => found.push(name(rest)),
        }
    }
    found.retain(|name| !name.is_empty());
    found
}

#[test]
fn every_room_has_a_floor() {
    for (room, path, _) in engine_sources() {
        assert!(floor_of(&room).is_some(), "{room} has no floor: {}", path.display());
    }
}

#[test]
fn no_room_imports_another_on_its_floor_or_above_it() {
    let mut faults = Vec::new();
    for (room, path, code) in engine_sources() {
        let floor = floor_of(&room).expect("tested above");
        for target in imports(&code) {
            let Some(below) = floor_of(&target) else { continue };
            let is_open = OPEN.iter().any(|&(from, to, _)| (from, to) == (&*room, &*target));
            let corridor = floor == 1 && below == 1;
            if target != room && below >= floor && !is_open && !corridor {
                faults.push(format!("{}: no door from {room} to {target}", path.display()));
            }
            if let Some((.., why)) =
                SHUT.iter().find(|&&(from, to, _)| (from, to) == (&*room, &*target))
            {
                faults.push(format!("{}: {room} to {target} is shut: {why}", path.display()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_system_is_used_only_in_its_rooms() {
    let mut faults = Vec::new();
    for (room, path, code) in engine_sources() {
        for (what, rooms) in SYSTEM {
            if code.contains(what) && !rooms.contains(&&*room) {
                faults.push(format!("{}: {what} belongs to {rooms:?}", path.display()));
            }
        }
        if code.contains("unsafe {") && room != "ring" {
            faults.push(format!("{}: unsafe belongs to ring", path.display()));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn no_file_is_longer_than_a_sitting() {
    let mut long = BTreeMap::new();
    for folder in ["wire", "engine", "tools", "benches", "perf", "tests"] {
        for path in sources(&root().join(folder)) {
            let lines = std::fs::read_to_string(&path).expect("a source").lines().count();
            if lines > LINES_MAX {
                long.insert(path, lines);
            }
        }
    }
    assert!(long.is_empty(), "two rooms in one file? {long:#?}");
}

#[test]
fn the_map_names_every_room() {
    let map = std::fs::read_to_string(root().join("engine/ARCHITECTURE.md")).expect("the map");
    for (_, rooms) in FLOORS {
        for room in *rooms {
            assert!(map.contains(&format!("`{room}`")), "engine/ARCHITECTURE.md forgets {room}");
        }
    }
}

#[test]
fn a_door_that_is_not_there_is_seen() {
    assert_eq!(imports("use crate::store::Log;"), ["store"]);
    assert_eq!(imports("use crate::{ids::Now, ring};"), ["ids", "ring"]);
    assert_eq!(imports("let x = crate::shard::place::owner;"), ["shard"]);
    assert_eq!(imports("$crate::ring"), Vec::<String>::new());
}
