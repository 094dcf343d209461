//! The entries of the fuzzer, driven for a moment by a seeded generator: sound bytes from brokers and
//! hurt ones, so that they run with every `cargo test`. `tests/fuzz` runs them for long.
//!
//! `FARSPAN_SMOKE_SECONDS` says how long each.

use std::time::{Duration, Instant};

use tests::entries::{self, mended};
use tests::random::Random;

const SECONDS: f64 = 2.0;

fn golden() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../wire/tests/golden");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .expect("golden bytes")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|ending| ending != "md"))
        .collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("readable")).collect()
}

/// A piece of sound bytes, or of none, hurt or not.
fn material(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = match random.below(4) {
        0 => {
            let length = random.index(300);
            random.bytes(length)
        }
        _ => seeds[random.index(seeds.len())].clone(),
    };
    if random.one_in(3) {
        let start = random.index(bytes.len());
        bytes.drain(..start);
    }
    if random.one_in(3) {
        bytes.truncate(random.index(bytes.len() + 1));
    }
    for _ in 0..random.below(6) {
        if bytes.is_empty() {
            break;
        }
        let at = random.index(bytes.len());
        match random.below(5) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = 0xff,
            2 => bytes[at] = 0x7f,
            3 => bytes[at] = 0,
            _ => bytes[at] = random.next().to_be_bytes()[0],
        }
    }
    if random.one_in(2) { mended(&bytes) } else { bytes }
}

/// Runs an entry on what `make` makes of the material; a failure names the seed that repeats it.
fn smoke(entry: fn(&[u8]), make: impl Fn(&mut Random, Vec<u8>) -> Vec<u8>) {
    let seconds = std::env::var("FARSPAN_SMOKE_SECONDS").ok().and_then(|s| s.parse().ok());
    let until = Instant::now() + Duration::from_secs_f64(seconds.unwrap_or(SECONDS));
    let seeds = golden();
    let mut random = Random::seeded("smoke");
    let mut runs = 0_u64;
    while Instant::now() < until {
        let bytes = material(&seeds, &mut random);
        let input = make(&mut random, bytes);
        entry(&input);
        runs += 1;
    }
    eprintln!("{runs} runs");
    assert!(runs > 0);
}

/// Decisions first, then the material, as often as it is.
fn script(random: &mut Random, bytes: &[u8], step_max: u64) -> Vec<u8> {
    let mut input = random.bytes(2);
    for _ in 0..random.below(20) {
        input.push(random.below(step_max).to_be_bytes()[7]);
        input.push(random.below(8).to_be_bytes()[7]);
        input.extend(random.bytes(2));
        let length = random.index(bytes.len().min(400) + 1);
        input.extend(u16::try_from(length).expect("short").to_be_bytes());
        input.extend(&bytes[..length]);
    }
    input
}

#[test]
fn requests_of_any_kind_keep_the_server_whole() {
    smoke(entries::requests, |random, bytes| script(random, &bytes, 16));
}

#[test]
fn answers_to_fetches_tell_places_that_lie_in_them() {
    smoke(entries::fetch_response, |random, bytes| {
        let version = [4, 11, 12, 18][random.index(4)];
        let body = if random.one_in(4) { random.below(16) } else { 8 + random.below(2) };
        let mut input = vec![version, body.to_be_bytes()[7], random.below(4).to_be_bytes()[7]];
        input.extend(bytes);
        input
    });
}

#[test]
fn batches_of_any_kind_are_walked_and_admitted_or_refused() {
    smoke(entries::batches, |random, bytes| {
        let mut input = vec![random.below(16).to_be_bytes()[7], random.below(12).to_be_bytes()[7]];
        if input[0] & 4 != 0 {
            input.extend([0, 0, 0, random.below(3).to_be_bytes()[7]]);
        }
        if input[0] & 8 != 0 {
            input.extend([0, 0, 0, random.below(6).to_be_bytes()[7]]);
        }
        input.extend(bytes);
        input
    });
}

#[test]
fn a_log_opens_on_whatever_lies_in_its_folder_or_says_why_not() {
    smoke(entries::recovery, |random, bytes| {
        let mut input = vec![random.below(4).to_be_bytes()[7], random.below(10).to_be_bytes()[7]];
        if input[0] & 2 != 0 {
            input.push(random.below(10).to_be_bytes()[7]);
        }
        for _ in 0..=random.below(5) {
            // The first segment more often than any other file.
            let name = if random.one_in(2) { 0 } else { random.below(14).to_be_bytes()[7] };
            let mended = if random.one_in(4) { 0x80 } else { 0 };
            input.push(name | mended);
            let length = if random.one_in(2) { bytes.len() } else { random.index(200) };
            let length = length.min(bytes.len());
            input.extend(u16::try_from(length).expect("short").to_be_bytes());
            input.extend(&bytes[..length]);
        }
        input
    });
}

#[test]
fn small_files_of_any_kind_are_read_or_refused() {
    const SOUND: [&str; 6] = [
        "0\n2\norders 0 1234\norders 1 99\n",
        "0\n2\n0 0\n5 77\n",
        "#\nversion=1\nnode.id=1\ncluster.id=abc\\:d\ndirectory.id=ZmFyc3Bhbi10ZXN0cy0xMg\n",
        "version: 0\ntopic_id: ZmFyc3Bhbi10ZXN0cy0xMg",
        "{\"version\":0,\"brokerEpoch\":7}",
        "0\n1\na 9223372036854775807 -1\n",
    ];
    smoke(entries::files, |random, bytes| {
        let mut input = vec![random.below(7).to_be_bytes()[7]];
        if random.one_in(3) {
            input.extend(bytes);
            return input;
        }
        let mut text = SOUND[random.index(SOUND.len())].as_bytes().to_vec();
        for _ in 0..random.below(4) {
            let at = random.index(text.len());
            let with = b"0129-\n =:#\\x\x00\xff";
            text[at] = with[random.index(with.len())];
        }
        input.extend(text);
        input
    });
}

#[test]
fn a_source_that_says_anything_after_a_sound_start_is_withstood() {
    smoke(entries::link, |random, bytes| script(random, &bytes, 12));
}
