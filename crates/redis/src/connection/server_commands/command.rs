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
                let positions = positions_of_keys(command, &args[2..]);
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

/// Positions of the keys in a command with these arguments, its subcommand's among them.
fn positions_of_keys(command: &Command, args: &[&[u8]]) -> Vec<usize> {
    match args {
        [_, word, _, ..] if command.subcommands.iter().any(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes())) => {
            vec![2]
        }
        _ => command.key_positions(args.len()).collect(),
    }
}

/// One entry of COMMAND.
fn describe(reply: &mut Reply<'_>, command: &Command) {
    let keys = match command.keys {
        Keys::None => (0, 0, 0),
        Keys::One(at) => (at, at, 1),
        Keys::Two => (1, 2, 1),
        Keys::Every(step) => (1, usize::MAX, step),
    };
    describe_arguments(reply, command, command.name, command.arity, keys);
    reply.array(command.subcommands.len());
    for (name, arity) in command.subcommands {
        describe_arguments(reply, command, &format!("{}|{name}", command.name), *arity, (2, 2, 1));
        reply.array(0);
    }
}

/// An entry without its subcommands. `keys` are the positions of the first and the last key, and the step between them.
fn describe_arguments(
    reply: &mut Reply<'_>,
    command: &Command,
    name: &str,
    arity: i32,
    (first, last, step): (usize, usize, usize),
) {
    reply.array(10);
    reply.bulk(name.as_bytes());
    reply.integer(i64::from(arity));
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
}

#[cfg(test)]
mod tests {
    use crate::connection::tests::connection;
    use crate::test_cluster::{TestNode, config};
    use tessera_types::EngineKind;

    /// redis-py in cluster mode sent neither WATCH nor OBJECT ENCODING, for which COMMAND named no keys.
    #[tokio::test]
    async fn it_tells_which_arguments_are_keys() {
        let node = TestNode::start(None, config());
        let table = node.create_table("t", EngineKind::Memory, 2).await;
        let mut connection = connection(&node, &table);
        let mut expect = async |line: &str, expected: &str| {
            assert_eq!(connection.given(line).await.replace("\r\n", " "), expected, "{line}");
        };
        expect("COMMAND INFO watch", "*1 *10 $5 watch :-2 *2 +fast +noscript :1 :-1 :1 *0 *0 *0 *0 ").await;
        expect(
            "COMMAND INFO memory",
            "*1 *10 $6 memory :-2 *1 +readonly :0 :0 :0 *0 *0 *0 *1 \
             *10 $12 memory|usage :-3 *1 +readonly :2 :2 :1 *0 *0 *0 *0 ",
        )
        .await;
        expect("COMMAND GETKEYS WATCH a b", "*2 $1 a $1 b ").await;
        expect("COMMAND GETKEYS OBJECT encoding a", "*1 $1 a ").await;
        expect("COMMAND GETKEYS MEMORY USAGE a SAMPLES 5", "*1 $1 a ").await;
        expect("COMMAND GETKEYS MEMORY DOCTOR", "-ERR The command has no key arguments ").await;
    }
}
