//! A server that parses GET and answers a constant: what the network code costs without a database.

use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Serves on one thread until the process ends.
pub fn run(port: u16, value_bytes: usize) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(tokio::task::LocalSet::new().run_until(async {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let mut answer = format!("${value_bytes}\r\n").into_bytes();
        answer.resize(answer.len() + value_bytes, b'x');
        answer.extend_from_slice(b"\r\n");
        let answer: &'static [u8] = answer.leak();
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::task::spawn_local(serve(stream, answer));
        }
    }))
}

async fn serve(mut stream: TcpStream, answer: &[u8]) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut input, mut output) = (Vec::with_capacity(16 << 10), Vec::new());
    while stream.read_buf(&mut input).await? > 0 {
        let mut at = 0;
        while let Some(length) = request_len(&input[at..]) {
            at += length;
            output.extend_from_slice(answer);
        }
        input.drain(..at);
        stream.write_all(&output).await?;
        output.clear();
    }
    Ok(())
}

/// Length of a whole array of bulk strings at the start of `input`.
fn request_len(input: &[u8]) -> Option<usize> {
    let mut at = 0;
    let number = |at: &mut usize| -> Option<usize> {
        let end = *at + memchr::memchr(b'\r', &input[*at..])?;
        let digits = input.get(*at + 1..end)?;
        *at = end + 2;
        std::str::from_utf8(digits).ok()?.parse().ok()
    };
    for _ in 0..number(&mut at)? {
        let length = number(&mut at)?;
        at += length + 2;
    }
    (at <= input.len()).then_some(at)
}
