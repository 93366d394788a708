//! Connections without a server, and tokens of feeds without tables, for the fuzz targets and the tests.

use crate::connection::understand;
use crate::feeds::Division;
use crate::frame::{Frames, HEAD_BYTES, Incoming, READ_BYTES};
use crate::handshake;
use crate::logins::Logins;
use crate::memory::Held;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use tessera_access::{Authenticator, Password, User, Users};
use tessera_face::ClientMemory;
use tessera_reql::Request;
use tessera_types::Partitioner;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::runtime::{Builder, Runtime};

/// The longest query of the imagined server.
const QUERY_BYTES: usize = 2048;
/// What the imagined server adds to the nonces of clients.
const NONCE: &str = "server";
/// The password `key` of its user `admin`, hashed once with the salt `salt`.
const PASSWORD: &str = "SCRAM-SHA-256$1:c2FsdA==$eTI6o6P8kP3krmk0LiAwufePGuTTOJWCdVEu0dVwJsQ=:4L6IXvMxu8A4L4eQzHgbrAeKQWaQDxc7eQ2yn9UkViE=";

/// What a client has said and was told.
#[derive(Debug, PartialEq, Eq)]
struct Conversation {
    told: Vec<u8>,
    /// How many bytes the handshake took.
    greeting: usize,
    /// Tokens and texts.
    queries: Vec<(i64, Vec<u8>)>,
    end: End,
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    Refused,
    Broken(io::ErrorKind),
    TooLong(i64, usize),
    Left,
}

/// Bytes that come in pieces, for each of which the reader has to wait.
struct Pieces<'a> {
    rest: &'a [u8],
    /// One less than the lengths of the pieces, over and over.
    lengths: &'a [u8],
    count: usize,
    /// What is left of the piece that is there.
    left: usize,
}

impl<'a> Pieces<'a> {
    fn new(rest: &'a [u8], lengths: &'a [u8]) -> Self {
        Self { rest, lengths, count: 0, left: 0 }
    }

    fn next_length(&mut self) -> usize {
        let length = self.lengths.get(self.count % self.lengths.len().max(1));
        self.count += 1;
        length.map_or(usize::MAX, |length| usize::from(*length) + 1)
    }
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let pieces = self.get_mut();
        if pieces.left == 0 {
            pieces.left = pieces.next_length();
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let (taken, rest) = pieces.rest.split_at(pieces.left.min(into.remaining()).min(pieces.rest.len()));
        into.put_slice(taken);
        (pieces.rest, pieces.left) = (rest, pieces.left - taken.len());
        Poll::Ready(Ok(()))
    }
}

/// Who may come in, and what handshakes run on.
fn server() -> &'static (Logins, Runtime) {
    static SERVER: OnceLock<(Logins, Runtime)> = OnceLock::new();
    SERVER.get_or_init(|| {
        let password = Some(Password::Scram(PASSWORD.parse().expect("it is a password")));
        let admin = User { name: "admin".into(), password, ..User::everybody() };
        let runtime = Builder::new_current_thread().build().expect("a runtime without sockets and time");
        (Logins::new(Arc::new(Authenticator::new(Users::new(vec![admin])))), runtime)
    })
}

/// Serves a client whose bytes come in pieces; in one, if no lengths are given.
fn converse(bytes: &[u8], lengths: &[u8]) -> Conversation {
    let (logins, runtime) = server();
    let memory = ClientMemory::new(0);
    let mut conversation = Conversation { told: Vec::new(), greeting: 0, queries: Vec::new(), end: End::Left };
    conversation.end = runtime.block_on(async {
        let mut stream = tokio::io::join(Pieces::new(bytes, lengths), &mut conversation.told);
        let agreed = handshake::greet(&mut stream, logins, || NONCE.into()).await;
        conversation.greeting = bytes.len() - stream.reader().rest.len();
        match agreed {
            Ok(Some(_)) => {}
            Ok(None) => return End::Refused,
            Err(error) => return End::Broken(error.kind()),
        }
        let mut frames = Frames::new(stream, Held::new(memory.join()), QUERY_BYTES);
        loop {
            match frames.next().await {
                Ok(Incoming::Query { token, text, kept: _ }) => {
                    assert!(text.capacity() <= READ_BYTES.max(2 * text.len()), "room is made as it comes");
                    conversation.queries.push((token, text));
                }
                Ok(Incoming::TooLong { token, length }) => return End::TooLong(token, length),
                Ok(Incoming::End) => return End::Left,
                Err(error) => return End::Broken(error.kind()),
            }
        }
    });
    conversation
}

/// Serves a client that says `bytes`, in pieces whose lengths are one more than those of `lengths`, over and over. Returns how many
/// queries came, and how many of them could be read.
///
/// # Panics
/// If what is understood depends on where the bytes were cut; if a query that is too long is not refused as soon as it is announced,
/// or another one not taken as soon as it is there.
pub fn serve(bytes: &[u8], lengths: &[u8]) -> (usize, usize) {
    let whole = converse(bytes, &[]);
    assert_eq!(whole, converse(bytes, lengths), "in pieces");
    let used: usize = whole.queries.iter().map(|(_, text)| HEAD_BYTES + text.len()).sum();
    match whole.end {
        End::Refused => assert_eq!(whole.told.last(), Some(&0), "a client that is refused is told why"),
        End::Broken(kind) => assert!(matches!(kind, io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData)),
        End::TooLong(_, length) => {
            assert!(length > QUERY_BYTES);
            let announced = &bytes[..whole.greeting + used + HEAD_BYTES];
            assert_eq!(whole, converse(announced, lengths), "refused when it is announced");
        }
        End::Left => {
            let there = converse(&bytes[..whole.greeting + used], lengths);
            assert_eq!(whole, there, "taken when it is there");
        }
    }
    let read = whole.queries.iter().filter(|(_, text)| is_read(text)).count();
    (whole.queries.len(), read)
}

/// Does to a query what a connection does before it runs.
fn is_read(text: &[u8]) -> bool {
    match understand(text.to_vec()) {
        Ok(Request::Start(query)) => {
            let _ = (query.flag("noreply"), query.flag("profile"), query.point());
            let _ = query.prepare(0.into());
            true
        }
        Ok(_) => true,
        Err(refusal) => {
            let answer: Result<serde_json::Value, _> = serde_json::from_slice(&refusal.text);
            assert!(refusal.class.is_some() && answer.is_ok(), "a refusal is an answer");
            false
        }
    }
}

/// Reads a resume token, and looks where feeds would go on in tables that were split since or were not.
///
/// # Panics
/// If they would go on in partitions that are not there.
pub fn resume(token: &str) {
    for resume in tessera_reql::read_resume_token(token).unwrap_or_default() {
        for partitioner in [Partitioner::Crc64, Partitioner::RedisSlots] {
            for partitions in [1, 8, 64] {
                let positions = Division { partitioner, partitions }.positions(&resume);
                assert!(positions.keys().all(|partition| *partition < partitions));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(token: i64, text: &str) -> Vec<u8> {
        let length = u32::try_from(text.len()).unwrap();
        [&token.to_le_bytes()[..], &length.to_le_bytes(), text.as_bytes()].concat()
    }

    /// Queries that can be read, and one that cannot.
    fn queries() -> Vec<u8> {
        [frame(1, "[1,[24,[1,2]],{}]"), frame(-2, "[2]"), frame(3, "[1,"), frame(1, "[5]")].concat()
    }

    fn with_key(magic: u32, key: &str, protocol: u32) -> Vec<u8> {
        let length = u32::try_from(key.len()).unwrap();
        [&magic.to_le_bytes()[..], &length.to_le_bytes(), key.as_bytes(), &protocol.to_le_bytes()].concat()
    }

    /// What a client says that knows the password, and the server's nonce and salt.
    fn with_scram() -> Vec<u8> {
        let first =
            r#"{"protocol_version":0,"authentication_method":"SCRAM-SHA-256","authentication":"n,,n=admin,r=client"}"#;
        let last = r#"{"authentication":"c=biws,r=clientserver,p=awPWsSZ0TY+L02Nydqxv/E2fnYSTgCHUn5umiYlQTpw="}"#;
        [&0x34c2_bdc3_u32.to_le_bytes()[..], first.as_bytes(), b"\0", last.as_bytes(), b"\0"].concat()
    }

    #[test]
    fn clients_of_all_protocols_come_in() {
        for greeting in
            [with_key(0x400c_2d20, "key", 0x7e69_70c7), with_key(0x5f75_e83e, "key", 0x7e69_70c7), with_scram()]
        {
            let bytes = [greeting, queries()].concat();
            for lengths in [&[][..], &[0], &[0, 6, 2], &[255]] {
                assert_eq!(serve(&bytes, lengths), (4, 3));
            }
            for length in 0..bytes.len() {
                serve(&bytes[..length], &[1, 0, 8]);
            }
        }
    }

    #[test]
    fn who_is_refused_is_told_why() {
        let json = 0x7e69_70c7;
        for (greeting, reason) in [
            (with_key(0x400c_2d20, "kez", json), "Incorrect authorization key."),
            (with_key(0x400c_2d20, &"k".repeat(2049), json), "too long"),
            (with_key(0x400c_2d20, "key", 0x271f_fc41), "PROTOBUF"),
            (with_key(0x400c_2d20, "key", 1), "Unrecognized protocol specified: '1'"),
            (with_key(0x7230_81e1, "key", json), "PROTOBUF"),
            (with_key(0x7230_81e2, "key", json), "unsupported protocol version"),
            ([&with_scram()[..4], &[b' '; 2048]].concat(), "Limited read buffer size."),
        ] {
            let bytes = [greeting, queries()].concat();
            assert_eq!(serve(&bytes, &[2]), (0, 0));
            let told = String::from_utf8(converse(&bytes, &[]).told).unwrap();
            assert!(told.contains(reason), "{told}");
        }
    }

    #[test]
    fn a_query_that_is_too_long_ends_the_connection() {
        let bytes = [with_key(0x400c_2d20, "key", 0x7e69_70c7), frame(1, "[5]"), frame(9, &" ".repeat(2049))].concat();
        assert_eq!(serve(&bytes, &[5]), (1, 1));
        assert_eq!(converse(&bytes, &[]).end, End::TooLong(9, 2049));
    }

    #[test]
    fn tokens_that_make_no_sense_are_refused_or_lead_nowhere() {
        // A table `t` of one partition, and a position in the last partition that a number can name.
        for token in ["", "xx", "01", "010174010100", "0101740101ffffffff0f0200", "010174ffffffff0f01feffffff0f0200"] {
            resume(token);
        }
        let read = tessera_reql::read_resume_token("0101740101ffffffff0f0200").unwrap();
        assert_eq!((read[0].scheme, &read[0].reached[..]), (1, &[(u32::MAX, 1)][..]));
    }
}
