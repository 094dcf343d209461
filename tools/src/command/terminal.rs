//! Standard error, shared by log lines and one line of progress that stays below them.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// To the line's start, and nothing on it.
const CLEAR: &[u8] = b"\r\x1b[2K";
/// What does not fit into the line is not shown, rather than continued on the next.
const NO_WRAP: &[u8] = b"\x1b[?7l";
const WRAP: &[u8] = b"\x1b[?7h";

/// Where log lines and the progress line go. Clones share it.
#[derive(Clone)]
pub struct Terminal(Arc<Mutex<State>>);

struct State {
    out: Box<dyn Write + Send>,
    is_terminal: bool,
    line: String,
}

impl Terminal {
    /// Standard error, with a progress line where somebody looks at it.
    #[must_use]
    pub fn stderr() -> Self {
        let stderr = io::stderr();
        let is_terminal = stderr.is_terminal();
        Self::new(Box::new(stderr), is_terminal)
    }

    /// Another place to write to.
    #[must_use]
    pub fn new(out: Box<dyn Write + Send>, is_terminal: bool) -> Self {
        Self(Arc::new(Mutex::new(State { out, is_terminal, line: String::new() })))
    }

    /// Sends log lines here, as far as `RUST_LOG` lets them through, or `level` where that says
    /// nothing. The first call counts; later ones change nothing.
    pub fn take_log(&self, level: &str) {
        let asked = std::env::var(EnvFilter::DEFAULT_ENV).unwrap_or_default();
        let filter = if asked.is_empty() { level } else { &asked };
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(filter))
            .with_target(false)
            .with_ansi(self.is_terminal())
            .with_writer(self.clone())
            .finish();
        // Somebody in this process may have taken the log before: then it is theirs.
        let _ = tracing::subscriber::set_global_default(subscriber);
    }

    /// Whether somebody looks at it.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.state().is_terminal
    }

    /// Shows a line in place of the one before. Nothing happens where nobody looks.
    pub fn show(&self, line: &str) {
        let mut state = self.state();
        if state.is_terminal && state.line != line {
            state.line = line.to_owned();
            // Nothing can be told of a terminal that is gone.
            let _ = state.redraw(b"");
        }
    }

    /// Takes the line away.
    pub fn clear(&self) {
        self.show("");
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Writes `above` where the progress line was, and that line again below it.
    fn redraw(&mut self, above: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(above.len() + self.line.len() + 16);
        if self.is_terminal {
            bytes.extend_from_slice(CLEAR);
        }
        bytes.extend_from_slice(above);
        if self.is_terminal && !self.line.is_empty() {
            bytes.extend_from_slice(NO_WRAP);
            bytes.extend_from_slice(self.line.as_bytes());
            bytes.extend_from_slice(WRAP);
        }
        self.out.write_all(&bytes)?;
        self.out.flush()
    }
}

/// Holds one log line together until it is whole.
pub struct LogLine {
    terminal: Terminal,
    bytes: Vec<u8>,
}

impl Write for LogLine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for LogLine {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            let _ = self.terminal.state().redraw(&self.bytes);
        }
    }
}

impl<'a> MakeWriter<'a> for Terminal {
    type Writer = LogLine;

    fn make_writer(&'a self) -> LogLine {
        LogLine { terminal: self.clone(), bytes: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no test panics here").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(paper: &Paper) -> String {
        let bytes = std::mem::take(&mut *paper.0.lock().expect("no test panics here"));
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn a_log_line_takes_the_place_of_the_progress_line_which_comes_again_below() {
        let paper = Paper::default();
        let terminal = Terminal::new(Box::new(paper.clone()), true);
        terminal.show("50%");
        assert_eq!(written(&paper), "\r\x1b[2K\x1b[?7l50%\x1b[?7h");
        let mut line = terminal.make_writer();
        line.write_all(b"a broker ").expect("memory");
        line.write_all(b"is back\n").expect("memory");
        assert_eq!(written(&paper), "", "nothing before the line is whole");
        drop(line);
        assert_eq!(written(&paper), "\r\x1b[2Ka broker is back\n\x1b[?7l50%\x1b[?7h");
        terminal.clear();
        assert_eq!(written(&paper), "\r\x1b[2K");
        terminal.clear();
        assert_eq!(written(&paper), "");
    }

    #[test]
    fn where_nobody_looks_there_are_plain_log_lines_only() {
        let paper = Paper::default();
        let terminal = Terminal::new(Box::new(paper.clone()), false);
        terminal.show("50%");
        terminal.make_writer().write_all(b"a broker is back\n").expect("memory");
        assert_eq!(written(&paper), "a broker is back\n");
    }
}
