//! Connections to servers: what is under way on them, and what is said of those that fail.

use crate::driver::{Encoder, GreetingReplies, ReplyCounter, request};
use crate::plan::Plan;
use crate::socket::{EXPECTS_TLS, Socket};
use crate::workload::Operation;
use anyhow::{Context, bail};
use mio::net::TcpStream;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Instant;

/// A client, with a link to each node that it talks to.
pub struct Connection {
    pub links: Vec<Link>,
    /// Operations that are not done.
    pub in_flight: usize,
}

pub struct Link {
    pub socket: Socket<TcpStream>,
    pub counter: Box<dyn ReplyCounter>,
    pub output: Vec<u8>,
    written: usize,
    /// What is under way, oldest first.
    pub in_flight: VecDeque<InFlight>,
}

pub struct InFlight {
    pub operation: Operation,
    pub due: Instant,
    /// Replies until it is done.
    pub replies: usize,
    /// Its requests' numbers, where the protocol has such.
    pub numbers: Option<Range<i32>>,
}

impl InFlight {
    /// Whether a request with this number is one of its own.
    pub fn is_of(&self, number: i32) -> bool {
        self.numbers.as_ref().is_some_and(|numbers| numbers.contains(&number))
    }

    /// Whether the next reply, or that to the request with this number, tells of a record that was asked for. What reads and then
    /// writes has two replies, of which the first does.
    pub fn is_read(&self, number: Option<i32>) -> bool {
        match self.operation {
            Operation::Read => true,
            Operation::ReadModifyWrite => match (number, &self.numbers) {
                (Some(number), Some(numbers)) => number == numbers.start,
                _ => self.replies == 2,
            },
            _ => false,
        }
    }
}

impl Connection {
    /// Sends what is to be sent, as far as the server takes it.
    pub fn write(&mut self) -> io::Result<()> {
        self.links.iter_mut().try_for_each(Link::write)
    }
}

impl Link {
    /// Connects and sends the greeting, waiting for its replies.
    ///
    /// # Errors
    /// If the server does not take the connection, or refuses what is said first.
    pub fn connect(plan: &Plan, address: SocketAddr, encoder: &dyn Encoder) -> anyhow::Result<Self> {
        let socket = connect(plan, address).with_context(|| format!("cannot connect to {address}"))?;
        let (counter, in_flight) = (encoder.counter(), VecDeque::new());
        Ok(Self { socket, counter, output: encoder.opening(), written: 0, in_flight })
    }

    /// As [`Connection::write`].
    pub fn write(&mut self) -> io::Result<()> {
        while self.written < self.output.len() {
            match self.socket.write(&self.output[self.written..]) {
                Ok(written) => self.written += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.written = 0;
        match self.socket.flush() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }
}

fn connect(plan: &Plan, address: SocketAddr) -> anyhow::Result<Socket<TcpStream>> {
    let mut socket = Socket::connect(address, plan.tls.as_ref())?;
    let mut counter = GreetingReplies::default();
    for command in &plan.greeting {
        let mut bytes = Vec::new();
        request(command, &mut bytes);
        socket.write_all(&bytes).and_then(|()| socket.flush()).map_err(|error| could_not_write(plan, error))?;
        let mut buffer = [0; 4096];
        loop {
            match socket.read(&mut buffer) {
                Ok(0) => bail!(ended(plan)),
                Ok(length) if counter.take(&buffer[..length]).count > 0 => break,
                Ok(_) => {}
                Err(error) => return Err(could_not_read(plan, error)),
            }
        }
        if let Some(error) = &counter.errors().last {
            // Its arguments may be secrets.
            bail!("the server refuses {}: {error}", command.first().map_or("", String::as_str));
        }
    }
    socket.stream().set_nonblocking(true)?;
    Ok(socket.map(TcpStream::from_std))
}

/// What is said of a connection that the server has ended, as one that expects TLS ends those on which it is not spoken.
pub fn ended(plan: &Plan) -> String {
    let protocol = plan.route.protocol();
    let question = match plan.tls {
        Some(_) => String::new(),
        None if protocol.has_tls() => format!("; {EXPECTS_TLS}"),
        None => format!("; does it expect TLS, which the benchmark does not speak over the protocol {protocol}?"),
    };
    format!("the server closed a connection{question}")
}

/// Why nothing more can be read from a connection.
pub fn could_not_read(plan: &Plan, error: io::Error) -> anyhow::Error {
    failed(plan, error, "reading from the server")
}

/// Why nothing more can be written to a connection.
pub fn could_not_write(plan: &Plan, error: io::Error) -> anyhow::Error {
    failed(plan, error, "writing to the server")
}

fn failed(plan: &Plan, error: io::Error, doing: &'static str) -> anyhow::Error {
    let is_end = matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted | io::ErrorKind::BrokenPipe
    );
    let what = if is_end { ended(plan) } else { doing.to_string() };
    anyhow::Error::new(error).context(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reply_of_a_read_is_told_from_that_of_the_write_after_it() {
        let of = |operation, replies, numbers| InFlight { operation, due: Instant::now(), replies, numbers };
        assert!(of(Operation::Read, 1, None).is_read(None) && of(Operation::Read, 1, Some(3..4)).is_read(Some(3)));
        assert!(!of(Operation::Update, 1, None).is_read(None));
        let both = Operation::ReadModifyWrite;
        assert_eq!([2, 1].map(|replies| of(both, replies, None).is_read(None)), [true, false]);
        // Replies come in any order where requests have numbers.
        let numbered = of(both, 2, Some(7..9));
        assert_eq!([7, 8].map(|number| numbered.is_read(Some(number))), [true, false]);
    }
}
