//! Replies in the protocol that the client chose.

/// The longest reply to one command.
pub const LONGEST_REPLY_BYTES: usize = 512 << 20;

/// The version of RESP that a connection speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// RESP2, which every client speaks.
    #[default]
    Resp2,
    /// RESP3, which a client asks for with `HELLO 3`.
    Resp3,
}

/// Writes replies. What RESP2 has no type for is written as Redis writes it there.
pub struct Reply<'a> {
    out: &'a mut Vec<u8>,
    protocol: Protocol,
}

impl<'a> Reply<'a> {
    /// Replies are appended to `out`.
    pub fn new(out: &'a mut Vec<u8>, protocol: Protocol) -> Self {
        Self { out, protocol }
    }

    /// The version of RESP in which replies are written.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Bytes of all replies in the buffer.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether nothing is in the output.
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        // A line break inside would end the reply early.
        self.out.extend(text.iter().map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
        self.out.extend_from_slice(b"\r\n");
    }

    fn number(&mut self, kind: u8, number: i64) {
        self.out.push(kind);
        self.out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    fn length(&mut self, kind: u8, length: usize) {
        self.number(kind, i64::try_from(length).unwrap_or(i64::MAX));
    }

    /// A simple string: one line without binary data.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// The reply `OK`.
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// `text` begins with the error's code.
    pub fn error(&mut self, text: &str) {
        self.line(b'-', text.as_bytes());
    }

    /// An integer.
    pub fn integer(&mut self, number: i64) {
        self.number(b':', number);
    }

    /// An integer from a count.
    pub fn count(&mut self, number: usize) {
        self.length(b':', number);
    }

    /// The integer 1 or 0, as Redis answers yes or no.
    pub fn boolean(&mut self, value: bool) {
        self.integer(i64::from(value));
    }

    /// A bulk string.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.length(b'$', bytes.len());
        self.out.reserve(bytes.len() + 2);
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// The reply for something that does not exist.
    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// The absence of a list.
    pub fn null_array(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"*-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// The header of an array; so many replies must follow.
    pub fn array(&mut self, elements: usize) {
        self.length(b'*', elements);
    }

    /// A map of that many pairs, which follow as key, value, key, value.
    pub fn map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => self.length(b'*', pairs * 2),
            Protocol::Resp3 => self.length(b'%', pairs),
        }
    }

    /// The header of a set, or of an array in RESP2; so many replies must follow.
    pub fn set(&mut self, elements: usize) {
        match self.protocol {
            Protocol::Resp2 => self.length(b'*', elements),
            Protocol::Resp3 => self.length(b'~', elements),
        }
    }

    /// Text for people.
    pub fn verbatim(&mut self, text: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => {
                self.length(b'=', text.len() + 4);
                self.out.extend_from_slice(b"txt:");
                self.out.extend_from_slice(text.as_bytes());
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }
}
