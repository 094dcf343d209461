//! Files that a removal or Kafka's log cleaner left behind when it was interrupted.
//!
//! A cleaner writes `.cleaned` files, renames them to `.swap` when all are whole, removes what they
//! replace and gives them their names. So `.cleaned` files are of no use and `.swap` files count,
//! unless a `.cleaned` one at or below them shows that the renaming itself did not end.

use std::path::Path;

use wire::ids::Offset;

use super::super::damage::Damage;
use super::super::names::{CLEANED, DELETED, FileKind, SWAP};
use super::super::scan::Headers;
use crate::io::Disk;

/// Removes or puts in place what was left behind, and makes the folder where it is missing. Gives how
/// many files that were.
pub(super) fn sweep(disk: &mut dyn Disk, folder: &Path) -> Result<usize, Damage> {
    let entries = match disk.list(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind == crate::io::IoErrorKind::NotFound => {
            disk.create_dir_all(folder)?;
            return Ok(0);
        }
        Err(error) => return Err(error.into()),
    };
    let names: Vec<_> =
        entries.into_iter().filter(|entry| !entry.is_dir).map(|entry| entry.name).collect();
    let mut count = 0;
    for name in names.iter().filter(|name| name.ends_with(DELETED) || name.ends_with(CLEANED)) {
        disk.remove(&folder.join(name))?;
        count += 1;
    }
    let cleaned = names.iter().filter_map(|name| base_before(name, CLEANED)).min();
    let mut swaps = Vec::new();
    for name in names.iter().filter(|name| name.ends_with(SWAP)) {
        count += 1;
        let base = base_before(name, SWAP);
        if base.is_some_and(|base| cleaned.is_none_or(|cleaned| base < cleaned)) {
            swaps.push(name);
        } else {
            disk.remove(&folder.join(name))?;
        }
    }
    if !swaps.is_empty() {
        put_in_place(disk, folder, &swaps, &names)?;
    }
    Ok(count)
}

/// The base offset of a file's name that has another suffix behind its own.
fn base_before(name: &str, suffix: &str) -> Option<Offset> {
    FileKind::parse(name.strip_suffix(suffix)?).map(|(_, base)| base)
}

fn put_in_place(
    disk: &mut dyn Disk,
    folder: &Path,
    swaps: &[&String],
    names: &[String],
) -> Result<(), Damage> {
    let (mut from, mut until) = (Offset(i64::MAX), Offset(i64::MIN));
    for name in swaps {
        let stem = name.strip_suffix(SWAP).unwrap_or(name);
        if let Some((FileKind::Log, base)) = FileKind::parse(stem) {
            let path = folder.join(name);
            let mut end = base;
            let length = disk.length(&path)?;
            let mut headers = Headers::with_chunk(&path, 0, length, super::LONG_WALK_CHUNK);
            while let Some((_, header)) = headers.next(disk)? {
                end = header.next_offset();
            }
            from = from.min(base);
            until = until.max(end);
        }
    }
    for name in names {
        if FileKind::parse(name).is_some_and(|(_, base)| (from..until).contains(&base)) {
            disk.remove(&folder.join(name))?;
        }
    }
    for name in swaps {
        let stem = name.strip_suffix(SWAP).unwrap_or(name);
        disk.rename(&folder.join(name), &folder.join(stem))?;
    }
    Ok(())
}
