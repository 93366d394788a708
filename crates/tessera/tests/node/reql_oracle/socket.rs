//! A connection to the ReQL port that reads what comes in any of the three forms that the protocol has, and notices the end.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tessera_oracle::{JSON_DEPTH, Json, parse_json};

/// A token and a length.
const HEAD_BYTES: usize = 12;

/// Why nothing was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nothing {
    Closed,
    /// Nothing came in the time allowed.
    Quiet,
}

pub struct Socket {
    stream: TcpStream,
    /// Bytes that have come and were not taken.
    came: Vec<u8>,
}

impl Socket {
    /// Before any handshake.
    pub fn to(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, came: Vec::new() }
    }

    /// Past the handshake V0_4, as `admin` without a password.
    pub fn greeted(port: u16, patience: Duration) -> Result<Self, Nothing> {
        let mut socket = Self::to(port);
        socket.send(&[0x400c_2d20_u32, 0, 0x7e69_70c7].map(u32::to_le_bytes).concat())?;
        assert_eq!(socket.until_nul(patience)?, "SUCCESS");
        Ok(socket)
    }

    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Nothing> {
        self.stream.write_all(bytes).map_err(|_| Nothing::Closed)
    }

    pub fn send_frame(&mut self, token: i64, body: &[u8], length: Option<u32>) -> Result<(), Nothing> {
        let length = length.unwrap_or(u32::try_from(body.len()).unwrap());
        self.send(&[&token.to_le_bytes()[..], &length.to_le_bytes(), body].concat())
    }

    fn fill(&mut self, end: Instant) -> Result<(), Nothing> {
        let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        self.stream.set_read_timeout(Some(left)).unwrap();
        let mut part = [0; 1 << 16];
        match self.stream.read(&mut part) {
            Ok(0) => Err(Nothing::Closed),
            Ok(count) => {
                self.came.extend_from_slice(&part[..count]);
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Err(Nothing::Quiet),
            Err(_) => Err(Nothing::Closed),
        }
    }

    /// What comes before the next zero byte.
    pub fn until_nul(&mut self, patience: Duration) -> Result<String, Nothing> {
        let end = Instant::now() + patience;
        loop {
            if let Some(at) = self.came.iter().position(|byte| *byte == 0) {
                let text = String::from_utf8_lossy(&self.came[..at]).into_owned();
                self.came.drain(..=at);
                return Ok(text);
            }
            self.fill(end)?;
        }
    }

    /// The next token and response.
    pub fn frame(&mut self, patience: Duration) -> Result<(i64, Json), Nothing> {
        let end = Instant::now() + patience;
        loop {
            if let Some(head) = self.came.first_chunk::<HEAD_BYTES>() {
                let token = i64::from_le_bytes(*head.first_chunk().unwrap());
                let length = u32::from_le_bytes(*head.last_chunk().unwrap()) as usize;
                if let Some(body) = self.came.get(HEAD_BYTES..HEAD_BYTES + length) {
                    let text = std::str::from_utf8(body).unwrap();
                    let response = parse_json(text, JSON_DEPTH).unwrap_or_else(|error| panic!("{error:?}: {text}"));
                    self.came.drain(..HEAD_BYTES + length);
                    return Ok((token, response));
                }
            }
            self.fill(end)?;
        }
    }
}
