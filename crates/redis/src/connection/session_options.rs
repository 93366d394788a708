//! What a connection asks of its reads and writes: DURABILITY, ACKS, READS.

use super::Connection;
use crate::commands::CommandError;
use std::fmt::Display;
use std::str::FromStr;
use tessera_store::WriteOptions;
use tessera_types::{Acks, Durability, ReadMode, RecordKey};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SessionOptions {
    pub(super) writes: WriteOptions,
    pub(super) reads: ReadMode,
}

/// A byte for each; the first is zero for what the table gives.
fn encode<T: Copy + PartialEq>(all: &[T], value: Option<T>) -> u8 {
    let place = value.and_then(|value| all.iter().position(|known| *known == value));
    place.map_or(0, |place| u8::try_from(place + 1).expect("there are a few"))
}

fn decode<T: Copy>(all: &[T], byte: u8) -> Option<Option<T>> {
    if byte == 0 { Some(None) } else { all.get(usize::from(byte) - 1).map(|value| Some(*value)) }
}

impl SessionOptions {
    /// As one node tells another.
    pub(super) fn encode(&self) -> [u8; 3] {
        let Self { writes: WriteOptions { durability, acks }, reads } = *self;
        [encode(Durability::ALL, durability), encode(Acks::ALL, acks), encode(ReadMode::ALL, Some(reads))]
    }

    pub(super) fn decode([durability, acks, reads]: [u8; 3]) -> Option<Self> {
        let writes = WriteOptions { durability: decode(Durability::ALL, durability)?, acks: decode(Acks::ALL, acks)? };
        Some(Self { writes, reads: decode(ReadMode::ALL, reads)?? })
    }
}

/// A setting by its name, or `table`.
fn parse<T: FromStr<Err = String>>(word: &[u8]) -> Result<Option<T>, CommandError> {
    let word = String::from_utf8_lossy(word).to_lowercase();
    if word == "table" {
        return Ok(None);
    }
    word.parse().map(Some).map_err(|error| CommandError::Reply(format!("ERR {error}, table").into()))
}

impl Connection {
    /// A command that tells a option, or makes it.
    fn set_or_tell<T: Copy + Display + FromStr<Err = String>>(
        &mut self,
        args: &[&[u8]],
        name: &str,
        option: fn(&mut SessionOptions) -> &mut Option<T>,
    ) -> Result<(), CommandError> {
        let option = option(&mut self.session.options);
        match args {
            [_] => {
                let text = option.map_or("table".into(), |option| option.to_string());
                self.reply().bulk(text.as_bytes());
            }
            [_, word] => {
                *option = parse(word)?;
                self.reply().ok();
            }
            _ => return Err(CommandError::arity(name)),
        }
        Ok(())
    }

    pub(super) fn durability(&mut self, args: &[&[u8]]) -> Result<(), CommandError> {
        self.set_or_tell(args, "durability", |options| &mut options.writes.durability)
    }

    pub(super) fn acks(&mut self, args: &[&[u8]]) -> Result<(), CommandError> {
        self.set_or_tell(args, "acks", |options| &mut options.writes.acks)
    }

    pub(super) fn reads(&mut self, args: &[&[u8]]) -> Result<(), CommandError> {
        match args {
            [_] => {
                let text = self.session.options.reads.as_str();
                self.reply().bulk(text.as_bytes());
            }
            [_, word] => {
                let word = String::from_utf8_lossy(word).to_lowercase();
                self.session.options.reads =
                    word.parse().map_err(|error| CommandError::Reply(format!("ERR {error}").into()))?;
                self.session.update();
                self.reply().ok();
            }
            [_, lag, key] if lag.eq_ignore_ascii_case(b"lag") => return self.lag(key),
            _ => return Err(CommandError::arity("reads")),
        }
        Ok(())
    }

    /// READS LAG: by how many milliseconds the replica on this node may be behind for a key.
    fn lag(&mut self, key: &[u8]) -> Result<(), CommandError> {
        let table = self.session.table().ok_or(CommandError::NO_TABLE)?;
        match table.lag(table.partition_of(&RecordKey::new(key, b""))) {
            Some(lag) => self.reply().integer(i64::try_from(lag.as_millis()).unwrap_or(i64::MAX)),
            None => self.reply().null(),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_reach_another_node_as_they_are() {
        let durabilities = Durability::ALL.iter().copied().map(Some).chain([None]);
        let writes = durabilities.map(|durability| WriteOptions { durability, acks: Some(Acks::Single) });
        for writes in writes.chain([WriteOptions::default()]) {
            for &reads in ReadMode::ALL {
                let options = SessionOptions { writes, reads };
                assert_eq!(SessionOptions::decode(options.encode()), Some(options));
            }
        }
        assert_eq!(SessionOptions::decode([9, 0, 1]), None);
        assert_eq!(SessionOptions::decode([0, 0, 0]), None, "reads have a mode");
    }
}
