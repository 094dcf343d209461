//! Where it was measured: numbers without their machine mean nothing.

use std::fs::read_to_string;
use std::process::Command;

use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    processor: String,
    processors: usize,
    memory_bytes: u64,
    kernel: String,
    java: String,
    commit: String,
    /// Processes that wanted to run in the minute before: who else was there.
    load_before: f64,
}

impl Machine {
    pub fn look() -> Self {
        let field = |file: &str, name: &str| {
            let text = read_to_string(file).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            line.split_once(':').map_or_else(String::new, |(_, value)| value.trim().to_owned())
        };
        let first_line = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).output();
            let output = output.map(|o| [o.stdout, o.stderr].concat()).unwrap_or_default();
            String::from_utf8_lossy(&output).lines().next().unwrap_or_default().to_owned()
        };
        let memory_kb = field("/proc/meminfo", "MemTotal").replace(" kB", "");
        let load = read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            processor: field("/proc/cpuinfo", "model name"),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: memory_kb.parse::<u64>().unwrap_or(0) * 1024,
            kernel: first_line("uname", &["-r"]),
            java: first_line("java", &["-version"]),
            commit: first_line("git", &["rev-parse", "--short", "HEAD"]),
            load_before: load.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0),
        }
    }
}
