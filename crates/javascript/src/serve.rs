//! A worker: the process in which programs run.
//!
//! One thread reads what the node asks and another one carries it out, so that the process ends as soon as the node does, whatever
//! the program is at.

use crate::confine;
use crate::engine::Engine;
use crate::message::{Reply, Request, body_length};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// A program has a part of this for itself, and converting values nested as deeply as they may be needs the rest.
const STACK_BYTES: usize = 8 << 20;

/// Carries out what comes through the standard input, a socket on which it answers, until that is closed.
pub fn serve() -> ExitCode {
    match begin() {
        Ok(socket) => read_requests(socket),
        Err(error) => {
            // The node says it to whoever asked.
            let told = Reply::Failed(error.to_string()).frame();
            let _ = io::stdin().as_fd().try_clone_to_owned().map(File::from).and_then(|mut node| node.write_all(&told));
            ExitCode::FAILURE
        }
    }
}

/// A connection to the node and a thread that carries out what is given to it.
type Begun = (File, SyncSender<Vec<u8>>);

fn begin() -> io::Result<Begun> {
    confine::close_files()?;
    let node = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let (to_engine, requests) = sync_channel(1);
    let (is_ready, ready) = sync_channel(1);
    let answers = node.try_clone()?;
    std::thread::Builder::new().name("javascript".into()).stack_size(STACK_BYTES).spawn(move || {
        let _ = is_ready.send(());
        let outcome = catch_unwind(AssertUnwindSafe(|| answer(&requests, answers)));
        // Also if it panicked: the node must not wait for an answer that will not come.
        std::process::exit(outcome.is_err().into());
    })?;
    // What a thread asks of the kernel to begin is not allowed later.
    ready.recv().map_err(io::Error::other)?;
    confine::leave_directories()?;
    confine::limit()?;
    confine::filter()?;
    (&node).write_all(&Reply::Value(tessera_document::Value::Null).frame())?;
    Ok((node, to_engine))
}

fn read_requests((mut node, to_engine): Begun) -> ExitCode {
    let mut head = [0; 4];
    while node.read_exact(&mut head).is_ok() {
        let Some(length) = body_length(head) else { return ExitCode::FAILURE };
        let mut body = vec![0; length];
        if node.read_exact(&mut body).is_err() || to_engine.send(body).is_err() {
            break;
        }
    }
    // The node has no use for this worker any more. Threads that still compute end with the process.
    ExitCode::SUCCESS
}

fn answer(requests: &Receiver<Vec<u8>>, mut node: File) {
    let mut engine = None;
    for body in requests {
        let act: Box<dyn FnOnce(&mut Engine) -> Reply> = match Request::read(&body) {
            Some(Request::Evaluate(source)) => Box::new(|engine| engine.evaluate(source)),
            Some(Request::Call { function, args }) => Box::new(move |engine| engine.call(function, &args)),
            Some(Request::Forget) => {
                engine = None;
                continue;
            }
            None => return,
        };
        let reply = match engine.get_or_insert_with(Engine::new) {
            Ok(engine) => act(engine),
            Err(error) => Reply::Failed(error.to_string()),
        };
        if node.write_all(&reply.frame()).is_err() {
            return;
        }
    }
}
