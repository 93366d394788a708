//! Requests of Redis' protocol, RESP.

/// Appends a request of these words.
pub fn request(words: &[String], out: &mut Vec<u8>) {
    header(out, words.len());
    words.iter().for_each(|word| bulk(out, word.as_bytes()));
}

/// Appends the beginning of a request of so many words.
pub fn header(out: &mut Vec<u8>, arguments: usize) {
    number_line(out, b'*', arguments);
}

fn number_line(out: &mut Vec<u8>, kind: u8, number: usize) {
    use std::io::Write;
    out.push(kind);
    write!(out, "{number}\r\n").expect("a vector takes all bytes");
}

/// Appends a word of a request.
pub fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    number_line(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}
