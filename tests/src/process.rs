//! Foreign processes: started so that they die with us, stopped by pid, measured from /proc.
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

/// How often a condition of a foreign process is looked at.
const POLL: Duration = Duration::from_millis(10);

/// The unit of /proc's times. Linux fixes it for every architecture we run on.
const TICKS_PER_SECOND: f64 = 100.0;

/// A command that is killed when we die, even by SIGKILL. Arguments are added by the caller.
pub fn tied(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// Starts a child whose life hangs on this process and not on the calling thread.
///
/// The kernel sends the death signal when the *thread* that forked ends, and the test runner ends a
/// thread after each test; so one thread that never ends forks for everybody.
pub fn spawn(command: Command) -> Result<Child, String> {
    type Request = (Command, Sender<io::Result<Child>>);
    static SPAWNER: OnceLock<Sender<Request>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (requests, inbox) = mpsc::channel::<Request>();
        std::thread::spawn(move || {
            for (mut command, reply) in inbox {
                // A caller that went away drops the child, as it would its own.
                let _ = reply.send(command.spawn());
            }
        });
        requests
    });
    let program = command.get_program().to_string_lossy().into_owned();
    let (reply, answer) = mpsc::channel();
    spawner.send((command, reply)).map_err(|_| "the spawning thread is gone".to_owned())?;
    let child = answer.recv().map_err(|_| "the spawning thread is gone".to_owned())?;
    child.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound if program == "setpriv" => {
            "setpriv is missing: install util-linux".to_owned()
        }
        _ => format!("{program}: {error}"),
    })
}

/// A child with its output in a file; killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    output: PathBuf,
}

impl Process {
    /// Starts `command` (see [`tied`]); stdout and stderr are appended to `output`.
    pub fn start(name: &str, mut command: Command, output: &Path) -> Result<Process, String> {
        let open = || -> io::Result<(File, File)> {
            let file = OpenOptions::new().create(true).append(true).open(output)?;
            Ok((file.try_clone()?, file))
        };
        let (out, err) = open().map_err(|e| format!("{}: {e}", output.display()))?;
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        let child = spawn(command).map_err(|e| format!("{name}: {e}"))?;
        Ok(Process { name: name.to_owned(), child, output: output.to_owned() })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn output(&self) -> &Path {
        &self.output
    }

    /// How it ended, or `None` while it lives.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill9(&mut self) {
        // Errors mean that it is gone already, which is what was asked for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGTERM, and waits; after `within` an error, and it still lives.
    pub fn terminate(&mut self, within: Duration) -> Result<ExitStatus, String> {
        if let Some(status) = self.ended() {
            return Ok(status);
        }
        self.signal("TERM")?;
        let what = format!("{} to stop", self.name);
        wait_until(&what, within, || self.ended()).map_err(|e| self.explain(&e))
    }

    /// SIGSTOP: it lives, holds its sockets and answers nothing.
    pub fn pause(&self) -> Result<(), String> {
        self.signal("STOP")
    }

    pub fn resume(&self) -> Result<(), String> {
        self.signal("CONT")
    }

    /// `what` with the last line of trouble in the output, in one line.
    pub fn explain(&self, what: &str) -> String {
        let text = std::fs::read(&self.output).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let trouble = ["ERROR", "FATAL", "Exception", "Error:"];
        let line = text.lines().rev().find(|line| trouble.iter().any(|word| line.contains(word)));
        let line = line.or_else(|| text.lines().last()).unwrap_or("no output");
        format!("{what}: {line} (all of it in {})", self.output.display())
    }

    fn signal(&self, signal: &str) -> Result<(), String> {
        let status = Command::new("sh")
            .args(["-c", "kill -$0 $1", signal, &self.pid().to_string()])
            .stderr(Stdio::null())
            .status();
        match status {
            Ok(status) if status.success() => Ok(()),
            _ => Err(format!("{}: no process to send SIG{signal} to", self.name)),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill9();
    }
}

/// Asks again and again until `condition` gives something; an error after `within`.
/// For foreign processes only: what runs in ours has an event to wait for.
pub fn wait_until<T>(
    what: &str,
    within: Duration,
    mut condition: impl FnMut() -> Option<T>,
) -> Result<T, String> {
    let deadline = Instant::now() + within;
    loop {
        if let Some(found) = condition() {
            return Ok(found);
        }
        if Instant::now() >= deadline {
            return Err(format!("waited {:.1} s for {what}", within.as_secs_f64()));
        }
        std::thread::sleep(POLL);
    }
}

/// User and system time of a process and of its ended threads; `None` once it is gone.
pub fn cpu_seconds(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may hold blanks; user and system time are the 12th and 13th after it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS_PER_SECOND)
}

/// Memory of a process that lies in RAM; `None` once it is gone.
pub fn resident_bytes(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// The most memory a process ever had in RAM; `None` once it is gone.
pub fn resident_bytes_max(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(folder: &Path) -> Process {
        let mut command = tied("sleep");
        command.arg("60");
        Process::start("sleeper", command, &folder.join("output")).unwrap()
    }

    #[test]
    fn a_child_outlives_the_thread_that_asked_for_it_and_ends_when_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        let mut child = std::thread::spawn(move || sleeper(&path)).join().unwrap();
        assert!(child.ended().is_none());
        assert!(!child.terminate(Duration::from_secs(5)).unwrap().success());
    }

    #[test]
    fn a_living_process_has_time_and_memory_and_a_dead_one_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = sleeper(folder.path());
        assert!(cpu_seconds(child.pid()).is_some());
        assert!(resident_bytes(std::process::id()).unwrap() > 0);
        assert!(resident_bytes_max(std::process::id()) >= resident_bytes(std::process::id()));
        child.kill9();
        assert_eq!(cpu_seconds(child.pid()), None);
    }
}
