//! Answers on their way to a client.

use crate::frame::HEAD_BYTES;
use crate::memory::Kept;
use bytes::{Buf, BufMut as _};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

/// An answer that the client has not taken yet.
pub(crate) struct Outgoing {
    pub(crate) token: i64,
    pub(crate) text: Vec<u8>,
    pub(crate) _kept: Kept,
}

/// Writes answers until there are no more. Returns where they went.
///
/// # Errors
/// Those of the stream, that the client takes none for too long, and that an answer has no place in a frame.
pub(crate) async fn write<W: AsyncWrite + Unpin>(
    mut writer: W,
    mut waiting: mpsc::Receiver<Outgoing>,
    patience: Duration,
) -> io::Result<W> {
    while let Some(answer) = waiting.recv().await {
        let mut head = Vec::with_capacity(HEAD_BYTES);
        head.put_i64_le(answer.token);
        let length = u32::try_from(answer.text.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        head.put_u32_le(length);
        let mut frame = Buf::chain(&head[..], &answer.text[..]);
        while frame.has_remaining() {
            let written = tokio::time::timeout(patience, writer.write_buf(&mut frame)).await;
            if written.map_err(|_| tessera_face::no_longer_read())?? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        tessera_face::flush(&mut writer, patience).await?;
    }
    Ok(writer)
}
