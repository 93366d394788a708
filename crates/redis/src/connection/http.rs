//! Browsers at the wrong door.
//!
//! A page of any web site can have a browser send a request to this port, with a body of its option, and inline commands make a
//! request look like commands: its head would be answered with errors and its body carried out. Redis ends such connections at
//! the first line that can only be HTTP, and so does this. Where the port speaks no TLS, a connection that begins it is ended too:
//! a page can have lines of its option stand in what its browser sends first, and a client that errs learns why from the log.

use super::Connection;

/// What a request's first line begins with.
const METHODS: [&[u8]; 10] =
    [b"GET", b"POST", b"PUT", b"HEAD", b"OPTIONS", b"DELETE", b"PATCH", b"CONNECT", b"TRACE", b"PRI"];

/// Whether an inline command is the first line of an HTTP request, such as `GET / HTTP/1.1`.
pub(super) fn is_request_line(words: &[&[u8]]) -> bool {
    match words {
        [name, ..] if names_http(name) => true,
        [method, _, version] => METHODS.contains(method) && version.starts_with(b"HTTP/"),
        _ => false,
    }
}

/// Whether a command has a name that no command will ever have, but requests do. The same as in Redis.
pub(super) fn names_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"POST") || name.eq_ignore_ascii_case(b"Host:")
}

impl Connection {
    /// Ends a connection that speaks HTTP, without a reply; nothing more of it is carried out.
    pub(super) fn end_http(&mut self) {
        tracing::warn!(
            address = %self.client.address,
            "a connection to the Redis port that speaks HTTP was ended: a web page may be trying to give commands"
        );
        self.closing = true;
    }

    /// Ends a connection that speaks TLS where nobody does, likewise.
    pub(super) fn end_tls(&mut self) {
        tracing::warn!(
            address = %self.client.address,
            "a connection that speaks TLS to the Redis port was ended: this node has no certificate (`tls.certificate`)"
        );
        self.closing = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_from_commands() {
        let is_request = |line: &str| is_request_line(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        for line in
            ["GET / HTTP/1.1", "POST", "post / HTTP/1.0", "Host: x", "host: x y z", "PRI * HTTP/2.0", "PUT /k HTTP/1.1"]
        {
            assert!(is_request(line), "{line}");
        }
        for line in ["GET k", "SET k HTTP/1.1", "GET / x", "PING", "DEL a HTTP", "POSTS", "Hosts: x"] {
            assert!(!is_request(line), "{line}");
        }
    }
}
