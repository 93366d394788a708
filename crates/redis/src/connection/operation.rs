//! Commands on their way to a partition's loop, and their replies on the way back.

use crate::commands::{Call, Command, CommandError, Run, SessionCommand};
use crate::resp::{Frame, Protocol, Reply};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;
use tessera_store::{Operation, Transaction, Verdict, Watch};
use tessera_types::RequestError;
use tokio::sync::oneshot;

/// A command's arguments, apart from the buffer that they came in.
pub(crate) struct OwnedFrame {
    bytes: Vec<u8>,
    arguments: SmallVec<[Range<usize>; 4]>,
}

/// Arguments of a command; most have few.
pub(super) type Arguments<'a> = SmallVec<[&'a [u8]; 6]>;

impl OwnedFrame {
    pub(super) fn take(input: &[u8], frame: &mut Frame) -> Arc<Self> {
        if let Some(words) = frame.unquoted.take() {
            return Self::from_arguments(words.iter().map(Vec::as_slice));
        }
        let (Some(first), Some(last)) = (frame.arguments.first(), frame.arguments.last()) else {
            return Self::from_arguments(std::iter::empty());
        };
        let start = first.start;
        let bytes = input[start..last.end].to_vec();
        let arguments = frame.arguments.iter().map(|range| range.start - start..range.end - start).collect();
        Arc::new(Self { bytes, arguments })
    }

    pub(super) fn from_arguments<'a>(arguments: impl Iterator<Item = &'a [u8]>) -> Arc<Self> {
        let mut bytes = Vec::new();
        let arguments = arguments
            .map(|argument| {
                bytes.extend_from_slice(argument);
                bytes.len() - argument.len()..bytes.len()
            })
            .collect();
        Arc::new(Self { bytes, arguments })
    }

    pub(super) fn arguments(&self) -> Arguments<'_> {
        self.arguments.iter().map(|range| &self.bytes[range.clone()]).collect()
    }
}

/// One command, to be run by the owner of its partition.
pub(super) struct CommandOperation {
    pub(super) command: &'static Command,
    pub(super) frame: Arc<OwnedFrame>,
    pub(super) protocol: Protocol,
    pub(super) reply: Vec<u8>,
    pub(super) sender: oneshot::Sender<Vec<u8>>,
}

impl Operation for CommandOperation {
    fn evaluate(&mut self, transaction: &mut Transaction<'_>) -> Verdict {
        match run(self.command, &self.frame, self.protocol, &mut self.reply, transaction) {
            Ok(()) => Verdict::Commit,
            Err(_) => Verdict::Abandon,
        }
    }

    fn answer(mut self: Box<Self>, outcome: Result<(), RequestError>) {
        if let Err(error) = outcome {
            self.reply.clear();
            Reply::new(&mut self.reply, self.protocol).error(&CommandError::Request(error).line());
        }
        // The client may have left.
        let _ = self.sender.send(self.reply);
    }
}

/// Runs a keyed command and leaves its reply, an error if that is what it is, in `out`.
pub(super) fn run(
    command: &Command,
    frame: &OwnedFrame,
    protocol: Protocol,
    out: &mut Vec<u8>,
    transaction: &mut Transaction<'_>,
) -> Result<(), CommandError> {
    let began = out.len();
    let args = frame.arguments();
    let outcome = match command.run {
        Run::Keyed(run) => run(&mut Call { args: &args, transaction, reply: Reply::new(out, protocol) }),
        // EXEC forgets watched keys anyway.
        Run::Session(SessionCommand::Unwatch) => {
            Reply::new(out, protocol).ok();
            Ok(())
        }
        Run::Session(_) => Err(CommandError::text("ERR not a command on keys")),
    };
    if let Err(error) = &outcome {
        out.truncate(began);
        Reply::new(out, protocol).error(&error.line());
    }
    outcome
}

/// The commands between MULTI and EXEC.
pub(super) struct TransactionOperation {
    pub(super) commands: Vec<(&'static Command, Arc<OwnedFrame>)>,
    pub(super) watches: Vec<(Watch, bool)>,
    pub(super) protocol: Protocol,
    pub(super) reply: Vec<u8>,
    pub(super) sender: oneshot::Sender<Vec<u8>>,
}

impl Operation for TransactionOperation {
    fn evaluate(&mut self, transaction: &mut Transaction<'_>) -> Verdict {
        if self.is_overtaken(transaction) {
            Reply::new(&mut self.reply, self.protocol).null_array();
            return Verdict::Abandon;
        }
        Reply::new(&mut self.reply, self.protocol).array(self.commands.len());
        for (command, frame) in &self.commands {
            if let Err(CommandError::Request(error)) = run(command, frame, self.protocol, &mut self.reply, transaction)
            {
                self.reply.clear();
                Reply::new(&mut self.reply, self.protocol).error(&CommandError::Request(error).line());
                return Verdict::Abandon;
            }
        }
        Verdict::Commit
    }

    fn answer(mut self: Box<Self>, outcome: Result<(), RequestError>) {
        if let Err(error) = outcome {
            self.reply.clear();
            Reply::new(&mut self.reply, self.protocol).error(&CommandError::Request(error).line());
        }
        let _ = self.sender.send(self.reply);
    }
}

impl TransactionOperation {
    /// Whether a watched key was written, or has expired, since it was watched.
    fn is_overtaken(&self, transaction: &mut Transaction<'_>) -> bool {
        self.watches.iter().any(|(watch, existed)| {
            let mut expired = || {
                let mut unread = Vec::new();
                let call = Call { args: &[], transaction, reply: Reply::new(&mut unread, Protocol::Resp2) };
                *existed && matches!(call.value(watch.hash_key()), Ok(None))
            };
            watch.is_touched() || expired()
        })
    }
}

/// The reply to a write that was sent.
pub(super) struct PendingReply {
    pub(super) parts: Parts,
    pub(super) frame: Arc<OwnedFrame>,
}

pub(super) enum Parts {
    One(oneshot::Receiver<Vec<u8>>),
    /// Integers to add up.
    Sum(Vec<oneshot::Receiver<Vec<u8>>>),
    /// One for all, since they are equal.
    Same(Vec<oneshot::Receiver<Vec<u8>>>),
    /// Known already.
    Ready(Vec<u8>),
}

impl PendingReply {
    pub(super) async fn wait(self, out: &mut Vec<u8>, protocol: Protocol) {
        match self.parts {
            Parts::One(receiver) => out.extend_from_slice(&receive(receiver, protocol).await),
            Parts::Ready(reply) => out.extend_from_slice(&reply),
            Parts::Sum(receivers) => {
                let (mut sum, mut error) = (0, None);
                for receiver in receivers {
                    let reply = receive(receiver, protocol).await;
                    match integer_reply(&reply) {
                        Some(number) => sum += number,
                        None => error = Some(reply),
                    }
                }
                match error {
                    Some(reply) => out.extend_from_slice(&reply),
                    None => Reply::new(out, protocol).integer(sum),
                }
            }
            Parts::Same(receivers) => {
                let mut shown = Vec::new();
                for receiver in receivers {
                    let reply = receive(receiver, protocol).await;
                    // An error is worth more than an OK.
                    if shown.is_empty() || reply.first() == Some(&b'-') {
                        shown = reply;
                    }
                }
                out.extend_from_slice(&shown);
            }
        }
    }
}

async fn receive(receiver: oneshot::Receiver<Vec<u8>>, protocol: Protocol) -> Vec<u8> {
    receiver.await.unwrap_or_else(|_| {
        let mut reply = Vec::new();
        Reply::new(&mut reply, protocol).error(&CommandError::Request(RequestError::Interrupted).line());
        reply
    })
}

fn integer_reply(reply: &[u8]) -> Option<i64> {
    crate::number::parse_integer(reply.strip_prefix(b":")?.strip_suffix(b"\r\n")?)
}
