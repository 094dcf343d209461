//! The limit: a thread receives and writes, and does nothing else.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use crate::calm::Everybody;
use crate::usage::{Sample, thread_cpu_seconds};

/// How the bytes of a run are moved.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub bytes: u64,
    pub chunk_bytes: usize,
    pub files: usize,
    pub crc: bool,
}

/// A thread sends, another receives chunks and writes them into one file after another. The subject
/// is the receiver.
pub fn run(folder: &Path, shape: Shape) -> Result<Sample, String> {
    let failed = |error: std::io::Error| format!("receive and write: {error}");
    let chunks = shape.bytes.div_ceil(shape.chunk_bytes as u64);
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let files: Vec<File> = (0..shape.files)
        .map(|index| File::create(folder.join(index.to_string())))
        .collect::<Result<_, _>>()
        .map_err(failed)?;
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || send(TcpStream::connect(address)?, shape, chunks));
        let (mut stream, _) = listener.accept().map_err(failed)?;
        let (started, used) = (Instant::now(), thread_cpu_seconds());
        let everybody = Everybody::start();
        let mut chunk = vec![0; shape.chunk_bytes];
        let mut ends = vec![0; files.len()];
        let mut sum = 0;
        for file in (0..files.len()).cycle().take(chunks as usize) {
            stream.read_exact(&mut chunk).map_err(failed)?;
            if shape.crc {
                // As large as a batch that a producer makes.
                chunk.chunks(64 << 10).for_each(|batch| sum ^= wire::batch::crc32c(batch));
            }
            files[file].write_all_at(&chunk, ends[file]).map_err(failed)?;
            ends[file] += chunk.len() as u64;
        }
        std::hint::black_box(sum);
        let seconds = started.elapsed().as_secs_f64();
        let cpu_seconds = thread_cpu_seconds() - used;
        let sender = sender.join().map_err(|_| "the sender panicked".to_owned())?;
        let sender = sender.map_err(failed)?;
        let strangers = ((everybody.cpu_seconds() - cpu_seconds - sender) / seconds).max(0.0);
        Ok(Sample {
            bytes: chunks * shape.chunk_bytes as u64,
            seconds,
            cpu_seconds,
            resident_bytes: shape.chunk_bytes as u64,
            strangers,
            others_cpu_seconds: BTreeMap::from([("sender".to_owned(), sender)]),
        })
    })
}

/// What it has used.
fn send(mut stream: TcpStream, shape: Shape, chunks: u64) -> std::io::Result<f64> {
    let used = thread_cpu_seconds();
    let chunk: Vec<u8> = (0..shape.chunk_bytes).map(|index| (index * 31 % 251) as u8).collect();
    for _ in 0..chunks {
        stream.write_all(&chunk)?;
    }
    Ok(thread_cpu_seconds() - used)
}
