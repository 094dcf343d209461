//! The limit: a thread receives and writes, and does nothing else. What it receives comes from memory,
//! or from the files of a broker as a broker sends them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::calm::Everybody;
use crate::usage::{Sample, thread_cpu_seconds};

/// How the bytes of a run are moved.
#[derive(Clone, Debug)]
pub struct Shape {
    pub bytes: u64,
    /// Files to send from; from memory where there are none.
    pub from: Vec<PathBuf>,
    pub chunk_bytes: usize,
    pub files: usize,
    pub crc: bool,
}

/// A thread sends, another receives chunks and writes them into one file after another. The subject
/// is the receiver.
pub fn run(folder: &Path, shape: &Shape) -> Result<Sample, String> {
    let failed = |error: std::io::Error| format!("receive and write: {error}");
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let files: Vec<File> = (0..shape.files)
        .map(|index| File::create(folder.join(index.to_string())))
        .collect::<Result<_, _>>()
        .map_err(failed)?;
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || send(TcpStream::connect(address)?, shape));
        let (mut stream, _) = listener.accept().map_err(failed)?;
        let (started, used) = (Instant::now(), thread_cpu_seconds());
        let everybody = Everybody::start();
        let mut chunk = vec![0; shape.chunk_bytes];
        let mut ends = vec![0; files.len()];
        let mut sum = 0;
        let mut left = shape.bytes;
        for file in (0..files.len()).cycle() {
            let length = left.min(chunk.len() as u64) as usize;
            if length == 0 {
                break;
            }
            let chunk = &mut chunk[..length];
            stream.read_exact(chunk).map_err(failed)?;
            if shape.crc {
                // As large as a batch that a producer makes.
                chunk.chunks(64 << 10).for_each(|batch| sum ^= wire::batch::crc32c(batch));
            }
            files[file].write_all_at(chunk, ends[file]).map_err(failed)?;
            ends[file] += length as u64;
            left -= length as u64;
        }
        std::hint::black_box(sum);
        let seconds = started.elapsed().as_secs_f64();
        let cpu_seconds = thread_cpu_seconds() - used;
        let sender = sender.join().map_err(|_| "the sender panicked".to_owned())?;
        let sender = sender.map_err(failed)?;
        let strangers = ((everybody.cpu_seconds() - cpu_seconds - sender) / seconds).max(0.0);
        Ok(Sample {
            bytes: shape.bytes,
            seconds,
            cpu_seconds,
            resident_bytes: shape.chunk_bytes as u64,
            strangers,
            others_cpu_seconds: BTreeMap::from([("sender".to_owned(), sender)]),
        })
    })
}

/// What it has used.
fn send(mut stream: TcpStream, shape: &Shape) -> std::io::Result<f64> {
    let used = thread_cpu_seconds();
    let mut left = shape.bytes;
    if !shape.from.is_empty() {
        let files = shape.from.iter().map(File::open).collect::<Result<Vec<_>, _>>()?;
        for mut file in files.iter().cycle() {
            if left == 0 {
                break;
            }
            // By sendfile(2). A file that has ended gives nothing more.
            let chunk = left.min(shape.chunk_bytes as u64);
            left -= std::io::copy(&mut Read::by_ref(&mut file).take(chunk), &mut stream)?;
        }
        return Ok(thread_cpu_seconds() - used);
    }
    let chunk: Vec<u8> = (0..shape.chunk_bytes).map(|index| (index * 31 % 251) as u8).collect();
    while left > 0 {
        let length = left.min(chunk.len() as u64);
        stream.write_all(&chunk[..length as usize])?;
        left -= length;
    }
    Ok(thread_cpu_seconds() - used)
}
