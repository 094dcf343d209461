//! What the ring's ways of writing and of serving cost here, beside a plain loop of system calls.
//!
//! `cargo run --release -p engine --example ring_measure [-- FOLDER]`. Memory that is touched for the first
//! time is slow on virtual machines, so every file is written before it is measured and every line
//! is the median of several rounds. Processor time is that of the measured side with the kernel's
//! workers, without the thread at the other end of the connection.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use engine::ids::{ConnId, Token};
use engine::io::{Done, Io, Op};
use engine::ring::{Ring, RingOptions, ServeBy, WriterKind};

const FILE_BYTES: usize = 256 << 20;
const ROUND_BYTES: usize = 512 << 20;
const ROUNDS: usize = 5;

fn main() {
    let folder = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let path = folder.join(format!("ring-measure-{}", std::process::id()));
    warm(&path);
    println!("{:<34}{:>10}{:>8}{:>12}", "receive and write", "request", "GB/s", "CPU s/GB");
    for bytes in [64 << 10, 1 << 20] {
        report("recv(2) + pwrite(2)", bytes, || plain_ingest(&path, bytes));
        for (writer, depth) in [
            (WriterKind::Inline, 1),
            (WriterKind::Inline, 4),
            (WriterKind::Ring, 4),
            (WriterKind::Direct, 4),
        ] {
            let name = format!("ring, {writer:?}, {depth} in flight");
            report(&name, bytes, || ring_ingest(&path, bytes, writer, depth));
        }
    }
    warm(&path);
    println!("{:<34}{:>10}{:>8}{:>12}", "serve from the page cache", "request", "GB/s", "CPU s/GB");
    for bytes in [4 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20] {
        for serve_by in [ServeBy::Copy, ServeBy::Splice, ServeBy::Sendfile] {
            for depth in [1, 4] {
                let name = format!("{serve_by:?}, {depth} in the queue");
                report(&name, bytes, || ring_serve(&path, bytes, serve_by, depth));
            }
        }
    }
    fs::remove_file(&path).expect("removed");
}

fn warm(path: &Path) {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path);
    let file = file.expect("opened");
    for part in 0..FILE_BYTES >> 20 {
        file.write_all_at(&vec![part as u8; 1 << 20], (part as u64) << 20).expect("written");
    }
    file.sync_all().expect("synced");
}

/// Seconds on the clock and seconds on processors.
type Cost = (f64, f64);

fn report(name: &str, request: usize, mut round: impl FnMut() -> Cost) {
    round();
    let mut costs: Vec<_> = (0..ROUNDS).map(|_| round()).collect();
    let gigabytes = ROUND_BYTES as f64 / 1e9;
    costs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let speed = gigabytes / costs[ROUNDS / 2].0;
    costs.sort_by(|a, b| a.1.total_cmp(&b.1));
    let cpu = costs[ROUNDS / 2].1 / gigabytes;
    println!("{name:<34}{:>6} KiB{speed:>8.2}{cpu:>12.3}", request >> 10);
}

/// Nanoseconds on processors of each thread of this process, the kernel's workers for it included.
fn processor_ns() -> HashMap<OsString, u64> {
    let tasks = fs::read_dir("/proc/self/task").expect("our threads");
    let time_of = |path: PathBuf| {
        let text = fs::read_to_string(path.join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    tasks
        .filter_map(Result::ok)
        .filter_map(|task| Some((task.file_name(), time_of(task.path())?)))
        .collect()
}

/// Measures while another thread stands at the far end of a connection.
fn against(far: impl FnOnce(TcpStream) + Send + 'static, near: impl FnOnce(TcpStream)) -> Cost {
    let listener = TcpListener::bind("127.0.0.1:0").expect("it listens");
    let address = listener.local_addr().expect("an address");
    let (say, hear) = std::sync::mpsc::channel();
    let (go, gone) = std::sync::mpsc::channel();
    let thread = thread::spawn(move || {
        let own = fs::read_link("/proc/thread-self").expect("a thread");
        say.send(own.file_name().expect("a number").to_owned()).expect("heard");
        far(TcpStream::connect(address).expect("connected"));
        // Its time is not counted, but it must not end before the count.
        let () = gone.recv().expect("told to go");
    });
    let other = hear.recv().expect("it lives");
    let (socket, _) = listener.accept().expect("accepted");
    let (clock, before) = (Instant::now(), processor_ns());
    near(socket);
    let (wall, after) = (clock.elapsed().as_secs_f64(), processor_ns());
    go.send(()).expect("it waits");
    thread.join().expect("it ends");
    // Workers of earlier rounds may have ended meanwhile; those of this one are still there.
    let ours = after.iter().filter(|(thread, _)| **thread != other);
    let spent = ours.map(|(thread, ns)| ns - before.get(thread).unwrap_or(&0)).sum::<u64>();
    (wall, spent as f64 / 1e9)
}

fn pour(mut socket: TcpStream) {
    let bytes = vec![7; 1 << 20];
    // The near side ends when it has enough.
    while socket.write_all(&bytes).is_ok() {}
}

fn drain(mut socket: TcpStream, length: usize) {
    let (mut left, mut bytes) = (length, vec![0; 1 << 20]);
    while left > 0 {
        let most = left.min(bytes.len());
        match socket.read(&mut bytes[..most]).expect("read") {
            0 => break,
            count => left -= count,
        }
    }
}

fn plain_ingest(path: &Path, bytes: usize) -> Cost {
    let file = OpenOptions::new().write(true).open(path).expect("opened");
    against(pour, |mut socket| {
        let mut buffer = vec![0; bytes];
        for number in 0..ROUND_BYTES / bytes {
            socket.read_exact(&mut buffer).expect("read");
            file.write_all_at(&buffer, (number * bytes % FILE_BYTES) as u64).expect("written");
        }
    })
}

/// Makes a ring with one connection to `far`. The ring is made before the clock starts.
fn with_ring(
    options: RingOptions,
    far: impl FnOnce(TcpStream) + Send + 'static,
    near: impl FnOnce(&mut Ring, ConnId),
) -> Cost {
    let mut ring = Ring::new(options).expect("a ring");
    let address = ring.listen(Token(0), ([127, 0, 0, 1], 0).into()).expect("it listens");
    ring.submit(Token(0), Op::Accept);
    against(
        move |go| {
            let socket = TcpStream::connect(address).expect("connected");
            far(socket);
            drop(go);
        },
        |_socket| {
            let mut done = Vec::new();
            let connection = loop {
                ring.turn(None, &mut done);
                if let Some((_, Done::Accepted { connection, .. })) = done.pop() {
                    break connection;
                }
            };
            near(&mut ring, connection);
            ring.close(connection);
        },
    )
}

fn ring_ingest(path: &Path, bytes: usize, writer: WriterKind, depth: usize) -> Cost {
    let options = RingOptions { writer, ..RingOptions::default() };
    let path: Arc<Path> = Arc::from(path);
    with_ring(options, pour, |ring, connection| {
        let file = ring.file(&path);
        let (mut asked, mut written, mut done) = (0, 0, Vec::new());
        let total = ROUND_BYTES / bytes;
        while written < total {
            while asked < total && asked - written < depth {
                let buffer = ring.buffers().lend(bytes).expect("within the budget");
                ring.submit(Token(asked as u64), Op::ReceiveExact { connection, buffer, from: 0 });
                asked += 1;
            }
            ring.turn(None, &mut done);
            for (token, what) in std::mem::take(&mut done) {
                match what {
                    Done::Filled { buffer, .. } => {
                        let position = (token.0 as usize * bytes % FILE_BYTES) as u64;
                        let (bytes, backfill) = (buffer.share(), true);
                        ring.submit(token, Op::Write { file, position, bytes, backfill });
                    }
                    Done::Written { .. } => written += 1,
                    other => panic!("{other:?}"),
                }
            }
        }
    })
}

fn ring_serve(path: &Path, bytes: usize, serve_by: ServeBy, depth: usize) -> Cost {
    let options = RingOptions { serve_by, splice_bytes_least: 0, ..RingOptions::default() };
    let path: Arc<Path> = Arc::from(path);
    assert!(File::open(&path).is_ok());
    with_ring(
        options,
        |socket| drain(socket, ROUND_BYTES),
        |ring, connection| {
            let file = ring.file(&path);
            let (mut asked, mut sent, mut done) = (0, 0, Vec::new());
            let total = ROUND_BYTES / bytes;
            while sent < total {
                while asked < total && asked - sent < depth {
                    let (position, length) = ((asked * bytes % FILE_BYTES) as u64, bytes as u64);
                    let op = Op::SendFile { connection, file, position, length };
                    ring.submit(Token(0), op);
                    asked += 1;
                }
                ring.turn(None, &mut done);
                for (_, what) in done.drain(..) {
                    assert!(matches!(what, Done::Sent { .. }), "{what:?}");
                    sent += 1;
                }
            }
        },
    )
}
