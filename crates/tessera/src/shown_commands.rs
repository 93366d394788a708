//! Tests that the commands in the guides and in the help texts are commands.

use crate::Cli;
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use std::path::{Path, PathBuf};

/// The words of a command, as a shell would split the line; `None` if what is there only shows where something goes.
fn words(line: &str) -> Option<Vec<String>> {
    let line = line.split("  #").next().unwrap_or_default();
    let line = line.split(" # ").next().unwrap_or_default();
    let line = line.split(" > ").next().unwrap_or_default();
    if ["...", "$(", "…"].iter().any(|part| line.contains(part)) {
        return None;
    }
    let (mut words, mut quote) = (vec![String::new()], None);
    for letter in line.trim().chars() {
        match quote {
            Some(end) if letter == end => quote = None,
            None if letter == '\'' || letter == '"' => quote = Some(letter),
            None if letter == ' ' => words.push(String::new()),
            _ => words.last_mut()?.push(letter),
        }
    }
    // A number is to stand there.
    let filled = words.into_iter().map(|word| if word == "N" { "2".into() } else { word });
    Some(filled.filter(|word| !word.is_empty()).collect())
}

/// What is wrong with a command; `is_mentioned` if it need not be whole.
fn mistake(line: &str, is_mentioned: bool) -> Option<String> {
    use ErrorKind::{
        DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, InvalidValue, MissingRequiredArgument, MissingSubcommand,
    };
    let words = words(line)?;
    let lacks_value = words.last().is_some_and(|last| last.starts_with('-'));
    let error = Cli::try_parse_from(words).err()?;
    let is_part = match error.kind() {
        DisplayHelpOnMissingArgumentOrSubcommand | MissingRequiredArgument | MissingSubcommand => true,
        InvalidValue => lacks_value,
        _ => false,
    };
    (error.kind() != DisplayHelp && !(is_mentioned && is_part)).then(|| format!("{line}\n{error}"))
}

/// The commands in a line of a terminal.
fn in_terminal(line: &str) -> Option<&str> {
    let command = line.trim().trim_start_matches("$ ").rsplit(" | ").next()?;
    let command = command.strip_prefix("target/release/").unwrap_or(command);
    (command.starts_with("tessera ") && line.trim_start().starts_with("$ ")).then_some(command)
}

/// The commands in code within a text.
fn in_text(text: &str) -> impl Iterator<Item = String> {
    let code = text.split('`').skip(1).step_by(2);
    code.map(|code| code.split_whitespace().collect::<Vec<_>>().join(" ")).filter(|code| code.starts_with("tessera "))
}

fn pages(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

#[test]
fn the_guides_show_commands_that_there_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    ["", "docs", "docs/guide"].iter().for_each(|directory| pages(&root.join(directory), &mut found));
    let (mut mistakes, mut count) = (Vec::new(), 0);
    // What was once is told there.
    for page in found.iter().filter(|page| !page.ends_with("CHANGELOG.md")) {
        let text = std::fs::read_to_string(page).unwrap();
        for (number, part) in text.split("```").enumerate() {
            let wrong: Vec<String> = match number % 2 {
                0 => in_text(part).inspect(|_| count += 1).filter_map(|line| mistake(&line, true)).collect(),
                _ => part
                    .lines()
                    .filter_map(in_terminal)
                    .inspect(|_| count += 1)
                    .filter_map(|line| mistake(line, false))
                    .collect(),
            };
            mistakes.extend(wrong.into_iter().map(|wrong| format!("{}: {wrong}", page.display())));
        }
    }
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    assert!(count > 100, "{count}");
}

fn check_help(command: &clap::Command, mistakes: &mut Vec<String>, count: &mut usize) {
    let text = |text: Option<&clap::builder::StyledStr>| text.map(ToString::to_string).unwrap_or_default();
    let examples = text(command.get_after_help());
    for line in examples.lines().filter(|line| line.trim().starts_with("tessera ")) {
        *count += 1;
        // What an example does stands behind it.
        let line = line.trim();
        mistakes.extend(mistake(line.split("  ").next().unwrap_or(line), false));
    }
    let arguments = command.get_arguments().map(|argument| text(argument.get_help()) + &text(argument.get_long_help()));
    let abouts = [text(command.get_about()), text(command.get_long_about())];
    for line in arguments.chain(abouts).flat_map(|text| in_text(&text).collect::<Vec<_>>()) {
        *count += 1;
        mistakes.extend(mistake(&line, true));
    }
    command.get_subcommands().for_each(|command| check_help(command, mistakes, count));
}

#[test]
fn the_help_shows_commands_that_there_are() {
    let (mut mistakes, mut count) = (Vec::new(), 0);
    check_help(&Cli::command(), &mut mistakes, &mut count);
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    assert!(count > 30, "{count}");
}
