//! Streams of lines, some of which say that a value of so many bytes follows: Redis' and memcached's protocols.

#[derive(Default)]
pub(super) struct Lines {
    /// Bytes of a value, with its line end, that are still to come.
    value: usize,
    /// The start of a line that has not ended yet.
    partial: Vec<u8>,
}

pub(super) enum Piece<'a> {
    /// Without its end.
    Line(&'a [u8]),
    /// A value has ended.
    Value,
}

impl Lines {
    /// Tells each piece that ends in these bytes. `tell` returns the length of the value that follows a line.
    pub(super) fn cut(&mut self, mut bytes: &[u8], mut tell: impl FnMut(Piece<'_>) -> Option<usize>) {
        while !bytes.is_empty() {
            if self.value > 0 {
                let taken = self.value.min(bytes.len());
                self.value -= taken;
                bytes = &bytes[taken..];
                if self.value == 0 {
                    tell(Piece::Value);
                }
                continue;
            }
            let Some(newline) = memchr::memchr(b'\n', bytes) else {
                self.partial.extend_from_slice(bytes);
                break;
            };
            let (mut line, rest) = bytes.split_at(newline + 1);
            bytes = rest;
            if !self.partial.is_empty() {
                self.partial.extend_from_slice(line);
                line = &self.partial;
            }
            let follows = tell(Piece::Line(line.strip_suffix(b"\r\n").unwrap_or(line)));
            self.value = follows.map_or(0, |length| length + b"\r\n".len());
            self.partial.clear();
        }
    }
}
