//! A client that sends what it is told and shows what comes back.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A reply of either protocol.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    Null,
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Array(Vec<Value>),
    Map(Vec<(Value, Value)>),
    Set(Vec<Value>),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Null => f.write_str("(nil)"),
            Self::Simple(text) => write!(f, "+{text}"),
            Self::Error(text) => write!(f, "-{text}"),
            Self::Integer(number) => write!(f, ":{number}"),
            Self::Bulk(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Self::Array(items) | Self::Set(items) => {
                f.write_str("[")?;
                items.iter().try_for_each(|item| write!(f, "{item} "))?;
                f.write_str("]")
            }
            Self::Map(pairs) => {
                f.write_str("{")?;
                pairs.iter().try_for_each(|(key, value)| write!(f, "{key}={value} "))?;
                f.write_str("}")
            }
        }
    }
}

pub struct Client {
    reader: BufReader<TcpStream>,
}

/// Long enough for a loaded machine, short enough that a hang is seen.
const PATIENCE: Duration = Duration::from_secs(30);

pub fn encode(command: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
    for argument in command {
        bytes.extend(format!("${}\r\n", argument.len()).into_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

pub fn words(text: &str) -> Vec<Vec<u8>> {
    text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

impl Client {
    pub fn connect(port: u16) -> io::Result<Self> {
        Self::connect_to("127.0.0.1", port)
    }

    pub fn connect_to(host: &str, port: u16) -> io::Result<Self> {
        let address = SocketAddr::new(host.parse().map_err(io::Error::other)?, port);
        // Over a link that is cut, no answer ever comes.
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { reader: BufReader::new(stream) })
    }

    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.reader.get_mut().write_all(bytes)
    }

    /// Sends what is written to it, while replies are read here.
    pub fn sender(&self) -> TcpStream {
        self.reader.get_ref().try_clone().unwrap()
    }

    /// Sends one command, words separated by single spaces, and returns its reply.
    pub fn run(&mut self, text: &str) -> Value {
        self.call(&words(text)).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    pub fn call(&mut self, command: &[Vec<u8>]) -> io::Result<Value> {
        self.send(&encode(command))?;
        self.read()
    }

    /// Sends all commands at once, then reads all replies.
    pub fn pipeline(&mut self, commands: &[Vec<Vec<u8>>]) -> io::Result<Vec<Value>> {
        let bytes: Vec<u8> = commands.iter().flat_map(|command| encode(command)).collect();
        self.send(&bytes)?;
        commands.iter().map(|_| self.read()).collect()
    }

    pub fn read(&mut self) -> io::Result<Value> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (kind, rest) = line.trim_end_matches("\r\n").split_at(1);
        let length = || rest.parse::<i64>().map_err(io::Error::other);
        Ok(match kind {
            "+" => Value::Simple(rest.into()),
            "-" => Value::Error(rest.into()),
            ":" => Value::Integer(length()?),
            "_" => Value::Null,
            "," | "(" => Value::Bulk(rest.as_bytes().to_vec()),
            "#" => Value::Integer(i64::from(rest == "t")),
            "$" | "=" => match usize::try_from(length()?) {
                Err(_) => Value::Null,
                Ok(length) => {
                    let mut bytes = vec![0; length + 2];
                    self.reader.read_exact(&mut bytes)?;
                    bytes.truncate(length);
                    if kind == "=" {
                        bytes.drain(..4);
                    }
                    Value::Bulk(bytes)
                }
            },
            "*" | "~" | ">" => match usize::try_from(length()?) {
                Err(_) => Value::Null,
                Ok(length) => {
                    let items = (0..length).map(|_| self.read()).collect::<io::Result<_>>()?;
                    if kind == "~" { Value::Set(items) } else { Value::Array(items) }
                }
            },
            "%" => {
                let pairs = length()?;
                Value::Map((0..pairs).map(|_| Ok((self.read()?, self.read()?))).collect::<io::Result<_>>()?)
            }
            other => return Err(io::Error::other(format!("unknown type '{other}'"))),
        })
    }
}
