//! Numbers in the arguments of commands.

use clap::Command;

/// Takes `-1` for the value of an argument, so that whoever gives it hears which numbers there may be, and not that there is no argument
/// of this name.
pub fn take_negative_numbers(command: Command) -> Command {
    let command = command.mut_args(|argument| match argument.get_action().takes_values() {
        true => argument.allow_negative_numbers(true),
        false => argument,
    });
    command.mut_subcommands(take_negative_numbers)
}

/// Reads a number that is not below 0.
///
/// # Errors
/// Which numbers there may be.
pub fn from_zero(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("a whole number from 0 to {} is expected", u64::MAX))
}

/// Reads a number above 0.
///
/// # Errors
/// Which numbers there may be.
pub fn from_one(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("a whole number from 1 to {} is expected", u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;
    use clap::CommandFactory as _;

    /// It once said "unexpected argument '-1' found".
    #[test]
    fn a_negative_number_is_refused_with_the_numbers_that_there_may_be() {
        for (line, numbers) in [
            ("tessera table create t --partitions -1", "-1 is not in 0..="),
            ("tessera table create t --replicas -1", "-1 is not in 0..="),
            ("tessera table create t --ttl -1", "a whole number from 0 to "),
            ("tessera table hot-keys t --partition -1", "-1 is not in 0..="),
            ("tessera table hot-keys t --partition 0 --seconds -5", "a whole number from 0 to "),
            ("tessera table compare t --bytes-per-second -1", "a whole number from 0 to "),
            ("tessera table recall -1", "-1 is not in 0..="),
            ("tessera node remove -1", "-1 is not in 0..="),
            ("tessera local --nodes -1", "-1 is not in 1..=64"),
            ("tessera status --port-offset -1", "-1 is not in 0..="),
            ("tessera status --timeout -1", "a whole number from 1 to "),
            ("tessera status --timeout 0", "a whole number from 1 to "),
            ("tessera start --port-offset -1", "-1 is not in 0..="),
        ] {
            let command = take_negative_numbers(Cli::command());
            let error = command.try_get_matches_from(line.split(' ')).unwrap_err().to_string();
            assert!(error.contains("invalid value '-") || line.ends_with(" 0"), "{line}: {error}");
            assert!(error.contains(numbers), "{line}: {error}");
        }
        let command = take_negative_numbers(Cli::command());
        assert!(command.try_get_matches_from(["tessera", "table", "list", "--timeout", "7", "--json"]).is_ok());
        take_negative_numbers(Cli::command()).debug_assert();
    }
}
