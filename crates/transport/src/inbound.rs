//! Connections that other nodes made.

use crate::frame::{self, Frame};
use crate::{Transport, handshake};
use bytes::BytesMut;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// How long a node may take to introduce itself.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long to wait when no connection can be taken, such as for lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) async fn serve(transport: Arc<Transport>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                let transport = transport.clone();
                tokio::spawn(async move {
                    if let Err(error) = connection(transport, stream).await {
                        tracing::debug!(%address, %error, "a connection from another node ended");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "no connection can be taken from other nodes");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Answers that wait to be written.
#[derive(Default)]
struct Answers {
    queue: Mutex<BytesMut>,
    wake: Notify,
}

async fn connection(transport: Arc<Transport>, mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let own = transport.identity();
    let from = tokio::time::timeout(HANDSHAKE, handshake::receive(&mut stream, own))
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let (mut reader, mut writer) = stream.into_split();
    let answers = Arc::new(Answers::default());
    let read = async {
        let mut input = BytesMut::with_capacity(64 << 10);
        let mut messages = Vec::new();
        loop {
            if reader.read_buf(&mut input).await? == 0 {
                return Ok(());
            }
            if let Some(node) = from {
                transport.heard_of(node);
            }
            while let Some(frame) = frame::take(&mut input)? {
                match (frame, from) {
                    (Frame::Message { kind, payload }, Some(_)) => messages.push((kind, payload)),
                    (Frame::Request { number, service, payload }, from) => {
                        let answer = transport.handler.request(from, service, payload);
                        let answers = answers.clone();
                        tokio::spawn(async move {
                            let answer = answer.await;
                            frame::response(&mut answers.queue.lock(), number, &answer);
                            answers.wake.notify_one();
                        });
                    }
                    (Frame::Alive, _) => {
                        frame::alive(&mut answers.queue.lock());
                        answers.wake.notify_one();
                    }
                    (Frame::Response { .. } | Frame::Message { .. }, _) => {
                        return Err(io::Error::other("a frame that has no place here"));
                    }
                }
            }
            if let Some(node) = from.filter(|_| !messages.is_empty()) {
                transport.handler.messages(node, &mut messages);
                messages.clear();
            }
        }
    };
    let write = async {
        let mut output = BytesMut::new();
        loop {
            answers.wake.notified().await;
            std::mem::swap(&mut *answers.queue.lock(), &mut output);
            writer.write_all(&output).await?;
            output.clear();
        }
    };
    tokio::select! {
        outcome = read => outcome,
        outcome = write => outcome,
    }
}
