//! A worker, as the node sees it: a process at the other end of a socket, which is killed when it takes too long.

use crate::message::{Reply, Request, body_length};
use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_reql::ScriptFailure;

/// The longest time that a program may run without an answer, whatever is asked for.
pub const LONGEST: Duration = Duration::from_secs(600);
/// How often is looked whether anybody still waits.
pub const LOOK: Duration = Duration::from_millis(20);
/// Functions that a worker keeps; with more it begins anew.
const MAX_FUNCTIONS: usize = 1000;
/// What is read at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// How a worker is started.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The binary, which must [serve](crate::serve()).
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Where a worker may make a directory for itself, which it removes at once.
    pub directory: PathBuf,
}

impl Launch {
    /// Starts the binary of this process, also if the file that it was started from is gone.
    pub fn itself(arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(Into::into).collect();
        Self { program: "/proc/self/exe".into(), arguments, directory: std::env::temp_dir() }
    }
}

/// Until when an answer is wanted.
pub struct Patience<'a> {
    pub until: Instant,
    /// Does not wait.
    pub goes_on: &'a dyn Fn() -> bool,
}

impl Patience<'_> {
    /// # Errors
    /// [`ScriptFailure::Late`] when nobody waits any more.
    pub fn check(&self) -> Result<(), ScriptFailure> {
        if Instant::now() < self.until && (self.goes_on)() { Ok(()) } else { Err(ScriptFailure::Late) }
    }
}

/// A process, which is killed and reaped when this goes.
pub struct Worker {
    process: Child,
    socket: UnixStream,
    /// The functions that programs have given, by the text of the program.
    functions: HashMap<Arc<str>, u32>,
    /// For how long it was asked for something.
    pub busy: Duration,
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended already, but its number belongs to it until it is reaped.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Worker {
    /// Starts a process and waits until it is ready.
    pub fn start(launch: &Launch, patience: &Patience<'_>) -> Result<Self, ScriptFailure> {
        let spawn = || -> io::Result<Self> {
            let (socket, theirs) = UnixStream::pair()?;
            socket.set_read_timeout(Some(LOOK))?;
            socket.set_write_timeout(Some(LOOK))?;
            let process = Command::new(&launch.program)
                .arg0("tessera")
                .args(&launch.arguments)
                .env_clear()
                .current_dir(&launch.directory)
                .stdin(Stdio::from(OwnedFd::from(theirs)))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            Ok(Self { process, socket, functions: HashMap::new(), busy: Duration::ZERO })
        };
        let unfit = |reason: String| {
            tracing::warn!(reason, "a worker for JavaScript could not be started");
            ScriptFailure::Failed(format!("JavaScript cannot run on this server: {reason}."))
        };
        let mut worker = spawn().map_err(|error| unfit(error.to_string()))?;
        match worker.receive(patience)? {
            Reply::Failed(reason) => Err(unfit(reason)),
            _ => Ok(worker),
        }
    }

    /// The number of the function that a program has given before.
    pub fn function(&self, source: &str) -> Option<u32> {
        self.functions.get(source).copied()
    }

    /// Has the worker drop all programs.
    pub fn forget(&mut self) -> Result<(), ScriptFailure> {
        self.functions.clear();
        self.send(&Request::Forget, &Patience { until: Instant::now() + LOOK, goes_on: &|| true })
    }

    /// Runs a program.
    pub fn evaluate(&mut self, source: &Arc<str>, patience: &Patience<'_>) -> Result<Reply, ScriptFailure> {
        if self.functions.len() >= MAX_FUNCTIONS {
            self.forget()?;
        }
        let reply = self.ask(&Request::Evaluate(source), patience)?;
        if let Reply::Function(number) = reply {
            self.functions.insert(source.clone(), number);
        }
        Ok(reply)
    }

    /// Has something carried out. After an error the worker is of no use.
    pub fn ask(&mut self, request: &Request<'_>, patience: &Patience<'_>) -> Result<Reply, ScriptFailure> {
        let began = Instant::now();
        self.send(request, patience)?;
        let reply = self.receive(patience);
        self.busy += began.elapsed();
        reply
    }

    fn send(&mut self, request: &Request<'_>, patience: &Patience<'_>) -> Result<(), ScriptFailure> {
        let frame = request.frame().ok_or_else(too_long)?;
        let mut rest = &frame[..];
        while !rest.is_empty() {
            let written = self.socket.write(rest);
            rest = &rest[patient(written, patience)?..];
        }
        Ok(())
    }

    fn receive(&mut self, patience: &Patience<'_>) -> Result<Reply, ScriptFailure> {
        let mut head = [0; 4];
        self.fill(&mut head, patience)?;
        let length = body_length(head).ok_or(ScriptFailure::Crashed)?;
        let mut body = Vec::new();
        while body.len() < length {
            let begin = body.len();
            body.resize(length.min(begin + CHUNK_BYTES), 0);
            self.fill(&mut body[begin..], patience)?;
        }
        Reply::read(body).ok_or(ScriptFailure::Crashed)
    }

    fn fill(&mut self, mut rest: &mut [u8], patience: &Patience<'_>) -> Result<(), ScriptFailure> {
        while !rest.is_empty() {
            let read = self.socket.read(rest);
            if matches!(read, Ok(0)) {
                return Err(ScriptFailure::Crashed);
            }
            rest = &mut rest[patient(read, patience)?..];
        }
        Ok(())
    }
}

/// How many bytes went through; none if there was no room or nothing to read for a while.
fn patient(outcome: io::Result<usize>, patience: &Patience<'_>) -> Result<usize, ScriptFailure> {
    patience.check()?;
    match outcome {
        Ok(bytes) => Ok(bytes),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {
            Ok(0)
        }
        Err(_) => Err(ScriptFailure::Crashed),
    }
}

/// That a request is longer than a worker takes. It was not sent.
fn too_long() -> ScriptFailure {
    ScriptFailure::Failed(format!(
        "What is given to `r.js` has more than {} bytes (limit `MESSAGE_BYTES`).",
        crate::MESSAGE_BYTES
    ))
}
