//! Replies in the protocol that the client chose.

/// The longest reply to one command.
pub const LONGEST_REPLY_BYTES: usize = 512 << 20;

/// The version of RESP that a connection speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    #[default]
    Resp2,
    Resp3,
}

/// Writes replies. What RESP2 has no type for is written as Redis writes it there.
pub struct Reply<'a> {
    out: &'a mut Vec<u8>,
    protocol: Protocol,
}

impl<'a> Reply<'a> {
    pub fn new(out: &'a mut Vec<u8>, protocol: Protocol) -> Self {
        Self { out, protocol }
    }

    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Bytes of all replies in the buffer.
    pub fn len(&self) -> usize {
        self.out.len()
    }

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

    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// `text` begins with the error's code.
    pub fn error(&mut self, text: &str) {
        self.line(b'-', text.as_bytes());
    }

    pub fn integer(&mut self, number: i64) {
        self.number(b':', number);
    }

    pub fn count(&mut self, number: usize) {
        self.length(b':', number);
    }

    pub fn boolean(&mut self, value: bool) {
        self.integer(i64::from(value));
    }

    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.length(b'$', bytes.len());
        self.out.reserve(bytes.len() + 2);
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

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
