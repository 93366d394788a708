//! How commands are counted.

use super::table::{COMMANDS, Command, Run, SessionCommand};
use tessera_store::RequestKind;

/// Commands that answer with what they find under keys or fields.
const LOOKUPS: &[&str] = &["get", "mget", "hget", "hmget", "hgetall", "hkeys", "hvals"];

/// The commands that are counted, by their [places](Command::place), and for each whether it looks for keys. All that are unknown count
/// as one.
pub fn counted_commands() -> impl Iterator<Item = (&'static str, bool)> {
    let counted = |command: &Command| (command.name, LOOKUPS.contains(&command.name));
    COMMANDS.iter().map(counted).chain([("unknown", false)])
}

/// Where a command is counted; an unknown one if it is `None`.
pub fn place_of(command: Option<&'static Command>) -> usize {
    command.map_or_else(|| COMMANDS.len(), Command::place)
}

/// What a command does. What EXEC carries out may write.
pub fn kind_of(command: &Command) -> RequestKind {
    match command.run {
        Run::Session(SessionCommand::Exec) => RequestKind::Write,
        _ if command.flags.write => RequestKind::Write,
        _ if command.flags.read => RequestKind::Read,
        _ => RequestKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::find;

    #[test]
    fn every_command_has_a_place_of_its_own() {
        let names: Vec<_> = counted_commands().collect();
        for command in COMMANDS {
            assert_eq!(names[place_of(Some(command))].0, command.name);
        }
        assert_eq!(names[place_of(None)], ("unknown", false));
        assert_eq!(names.iter().filter(|(_, looks_up)| *looks_up).count(), LOOKUPS.len());
    }

    #[test]
    fn commands_are_of_a_kind() {
        let of = |name: &str| kind_of(find(name.as_bytes()).unwrap()).name();
        let kinds = ["get", "hgetall", "set", "del", "flushall", "exec", "ping", "multi"].map(of);
        assert_eq!(kinds, ["read", "read", "write", "write", "write", "write", "other", "other"]);
    }
}
