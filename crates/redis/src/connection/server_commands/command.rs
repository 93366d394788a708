//! COMMAND: what commands there are.

use super::super::Connection;
use super::unknown_subcommand_named;
use crate::commands::{self, Command, CommandError, Keys, Run, table::COMMANDS};
use crate::resp::Reply;

impl Connection {
    pub(super) fn command_command(&mut self, args: &[&[u8]]) -> Result<(), CommandError> {
        let subcommand = args.get(1).map(|word| word.to_ascii_uppercase());
        let named = |names: &[&[u8]]| -> Vec<Option<&'static Command>> {
            if names.is_empty() {
                COMMANDS.iter().map(Some).collect()
            } else {
                names.iter().map(|name| commands::find(name)).collect()
            }
        };
        let mut reply = self.reply();
        match subcommand.as_deref() {
            None => {
                reply.array(COMMANDS.len());
                COMMANDS.iter().for_each(|command| describe(&mut reply, command));
            }
            Some(b"COUNT") => reply.count(COMMANDS.len()),
            Some(b"LIST") => {
                reply.array(COMMANDS.len());
                COMMANDS.iter().for_each(|command| reply.bulk(command.name.as_bytes()));
            }
            Some(b"INFO") => {
                let found = named(&args[2..]);
                reply.array(found.len());
                for command in found {
                    match command {
                        Some(command) => describe(&mut reply, command),
                        None => reply.null_array(),
                    }
                }
            }
            Some(b"DOCS") => {
                let found: Vec<_> = named(&args[2..]).into_iter().flatten().collect();
                reply.map(found.len());
                for command in found {
                    reply.bulk(command.name.as_bytes());
                    let fields =
                        [("summary", command.summary), ("since", command.since), ("group", command.group.name())];
                    reply.map(fields.len());
                    for (name, text) in fields {
                        reply.bulk(name.as_bytes());
                        reply.bulk(text.as_bytes());
                    }
                }
            }
            Some(b"GETKEYS") => {
                let command = args.get(2).and_then(|name| commands::find(name));
                let command = command.ok_or(CommandError::text("ERR Invalid command specified"))?;
                if !command.takes(args.len() - 2) {
                    return Err(CommandError::text("ERR Invalid number of arguments specified for command"));
                }
                let positions: Vec<_> = command.key_positions(args.len() - 2).collect();
                if positions.is_empty() {
                    return Err(CommandError::text("ERR The command has no key arguments"));
                }
                reply.array(positions.len());
                positions.iter().for_each(|at| reply.bulk(args[2 + at]));
            }
            Some(_) => return Err(unknown_subcommand_named("COMMAND", args[1])),
        }
        Ok(())
    }
}

/// One entry of COMMAND.
fn describe(reply: &mut Reply<'_>, command: &Command) {
    let (first, last, step) = match command.keys {
        Keys::None => (0, 0, 0),
        Keys::One(at) => (at, at, 1),
        Keys::Two => (1, 2, 1),
        Keys::Every(step) => (1, usize::MAX, step),
    };
    reply.array(10);
    reply.bulk(command.name.as_bytes());
    reply.integer(i64::from(command.arity));
    let flags = command.flags;
    let names: Vec<&str> = [
        (flags.write, "write"),
        (flags.read, "readonly"),
        (flags.fast, "fast"),
        (flags.admin, "admin"),
        (flags.no_auth, "no_auth"),
        (matches!(command.run, Run::Session(_)) && !flags.read && !flags.write, "noscript"),
    ]
    .into_iter()
    .filter_map(|(is, name)| is.then_some(name))
    .collect();
    reply.set(names.len());
    names.iter().for_each(|name| reply.simple(name));
    reply.count(first);
    reply.integer(if last == usize::MAX { -1 } else { i64::try_from(last).unwrap_or(-1) });
    reply.count(step);
    reply.set(0);
    reply.set(0);
    reply.set(0);
    reply.array(0);
}
