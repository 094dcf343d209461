//! `perf node`: the engine in a process of its own, with the flags that `farspan mirror` has.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use engine::config::Config;
use engine::node::Node;
use engine::ring::WriterKind;
use engine::source::{LinkOptions, TopicFilter};

#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
struct Arguments {
    #[arg(long)]
    from: Option<String>,
    #[arg(long, default_value = ".*")]
    topics: String,
    #[arg(long)]
    data: PathBuf,
    #[arg(long)]
    listen: SocketAddr,
    #[arg(long)]
    http: Option<SocketAddr>,
    #[arg(long)]
    shards: Option<u16>,
    #[arg(long)]
    pin: bool,
    #[arg(long)]
    memory: Option<usize>,
    #[arg(long)]
    writer: Option<String>,
    #[arg(long)]
    fetchers_per_broker: Option<u32>,
    #[arg(long)]
    fetch_bytes_max: Option<i32>,
    #[arg(long)]
    fetch_bytes_near: Option<i32>,
    #[arg(long)]
    partition_fetch_bytes_max: Option<i32>,
    #[arg(long)]
    fetch_min_bytes: Option<i32>,
    #[arg(long)]
    fetch_max_wait_ms: Option<u64>,
}

/// Runs until it is killed.
pub fn main(words: impl Iterator<Item = String>) -> Result<(), String> {
    tracing_subscriber::fmt().with_max_level(tracing_subscriber::filter::LevelFilter::WARN).init();
    let arguments = Arguments::try_parse_from(words).map_err(|error| error.to_string())?;
    let node = Node::start(&config(&arguments)?).map_err(|error| error.to_string())?;
    println!("listening on {}", node.address());
    loop {
        std::thread::sleep(Duration::from_secs(1));
        if let Some(failure) = node.failure() {
            return Err(failure);
        }
    }
}

fn config(arguments: &Arguments) -> Result<Config, String> {
    let mut config = Config::new(arguments.data.clone());
    config.listen = arguments.listen;
    config.http = arguments.http;
    config.pin = arguments.pin;
    config.shards = arguments.shards.unwrap_or(config.shards);
    config.memory_bytes = arguments.memory.unwrap_or(config.memory_bytes);
    config.writer = match arguments.writer.as_deref() {
        None => config.writer,
        Some("inline") => WriterKind::Inline,
        Some("ring") => WriterKind::Ring,
        Some("direct") => WriterKind::Direct,
        Some(other) => return Err(format!("there is no writer {other}")),
    };
    if let Some(from) = &arguments.from {
        config.source = Some(link(arguments, from)?);
    }
    Ok(config)
}

fn link(arguments: &Arguments, from: &str) -> Result<LinkOptions, String> {
    let mut link = LinkOptions::default();
    for address in from.split(',') {
        let (host, port) = address.rsplit_once(':').ok_or("--from wants HOST:PORT")?;
        let port = port.parse().map_err(|error| format!("{address}: {error}"))?;
        link.bootstrap.push((host.to_owned(), port));
    }
    link.topics = TopicFilter::new(&[arguments.topics.as_str()], &[]).map_err(|e| e.to_string())?;
    let Arguments { fetchers_per_broker, fetch_bytes_max, partition_fetch_bytes_max, .. } =
        *arguments;
    link.fetchers_per_broker = fetchers_per_broker.unwrap_or(link.fetchers_per_broker);
    link.fetch_bytes_max = fetch_bytes_max.unwrap_or(link.fetch_bytes_max);
    link.fetch_bytes_near = arguments.fetch_bytes_near.unwrap_or(link.fetch_bytes_near);
    link.partition_fetch_bytes_max =
        partition_fetch_bytes_max.unwrap_or(link.partition_fetch_bytes_max);
    link.fetch_min_bytes = arguments.fetch_min_bytes.unwrap_or(link.fetch_min_bytes);
    let wait = arguments.fetch_max_wait_ms.map(Duration::from_millis);
    link.fetch_max_wait = wait.unwrap_or(link.fetch_max_wait);
    Ok(link)
}
