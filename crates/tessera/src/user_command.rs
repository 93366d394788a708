//! `tessera user ...`

use crate::NodeArgs;
use crate::admin_client::{call, escaped};
use crate::exit::ExitError;
use crate::password::read_password;
use crate::table_command::warn_of_nodes_behind;
use clap::Subcommand;
use serde_json::{Map, Value, json};
use tessera_access::{ScramPassword, User};
use tessera_types::Right;

#[derive(Subcommand)]
pub enum UserCommand {
    /// Make a user, who may do nothing until something is granted
    #[command(after_help = "\
The password is read from the standard input, up to the end of its first line. Only its hash leaves this machine.

Example:
  printf %s PASSWORD | tessera user create shop
  tessera user grant shop read write --table sessions")]
    Create {
        name: String,
        /// Let in whoever gives the name
        #[arg(long)]
        no_password: bool,
    },
    /// Give a user another password
    #[command(after_help = "\
The password is read from the standard input, up to the end of its first line. Only its hash leaves this machine.

The user `admin` always exists, and may do everything. As long as it has no password, whoever connects may do everything
too; its first password closes all ports of all nodes to those who do not log in:
  printf %s PASSWORD | tessera user alter admin
  export TESSERA_ADMIN_USER=admin TESSERA_ADMIN_PASSWORD=PASSWORD    for the commands after it")]
    Alter {
        name: String,
        /// Let in whoever gives the name. Of `admin` this opens the cluster to everybody
        #[arg(long)]
        no_password: bool,
    },
    /// Give a user rights, or deny them: everywhere, in a database, or in a table
    #[command(after_help = "\
read and write are about records, config about tables and indexes and, if it holds everywhere, about databases, nodes,
settings and users, so that who has it can take all other rights; connect lets queries reach other servers. The most specific place where something is decided decides.

Examples:
  tessera user grant shop read                        in all tables
  tessera user grant shop read write --table sessions
  tessera user grant shop config --database test      tables of documents: make and change them
  tessera user grant shop write --table test.orders --deny
  tessera user grant shop write --table test.orders --unset    as it is elsewhere")]
    Grant {
        name: String,
        /// The rights: read, write, config, connect
        #[arg(required = true, value_name = "RIGHT", value_parser = right)]
        rights: Vec<Right>,
        /// The rights apply in the tables of documents of this database; `rethinkdb` has the tables that tell how the cluster is
        #[arg(long, conflicts_with = "table")]
        database: Option<String>,
        /// The rights apply in this table. The name of a table of documents is DATABASE.NAME
        #[arg(long)]
        table: Option<String>,
        /// Deny the rights instead of giving them
        #[arg(long, conflicts_with = "unset")]
        deny: bool,
        /// Decide nothing here: a wider place decides
        #[arg(long)]
        unset: bool,
    },
    /// Forget a user. Whoever is logged in as this user may do nothing any more
    Drop { name: String },
    /// List the users and what each of them may do
    List,
}

fn right(word: &str) -> Result<Right, &'static str> {
    Right::named(word).ok_or("known are read, write, config and connect")
}

/// What goes to the node of a password.
fn hashed(no_password: bool) -> Result<(&'static str, Value), ExitError> {
    if no_password {
        return Ok(("password", Value::Null));
    }
    let hash = ScramPassword::new(read_password()?.as_bytes(), ScramPassword::ITERATIONS);
    Ok(("password_hash", json!(hash.to_string())))
}

fn path(name: &str, rest: &str) -> String {
    format!("/v1/users/{}{rest}", escaped(name))
}

pub fn run(command: &UserCommand, node: &NodeArgs) -> Result<(), ExitError> {
    match command {
        UserCommand::Create { name, no_password } => {
            let (field, value) = hashed(*no_password)?;
            call(node, "POST", "/v1/users", Some(&json!({ "name": name, field: value })))?;
            println!("created user {name}; `tessera user grant {name} RIGHT...` lets it do something");
            note_if_open(node)
        }
        UserCommand::Alter { name, no_password } => {
            let (field, value) = hashed(*no_password)?;
            let changed = call(node, "PATCH", &path(name, ""), Some(&json!({ field: value })))?;
            println!("user {name} has {}", if *no_password { "no password" } else { "another password" });
            warn_of_nodes_behind(&changed, "log in with the old password until it hears of this");
            Ok(())
        }
        UserCommand::Grant { name, rights, database, table, deny, unset } => {
            let decision = if *unset { Value::Null } else { Value::Bool(!deny) };
            let permissions: Map<String, Value> =
                rights.iter().map(|right| (right.name().to_string(), decision.clone())).collect();
            let body = json!({ "database": database, "table": table, "permissions": permissions });
            let changed = call(node, "POST", &path(name, "/grant"), Some(&body))?;
            println!("changed what user {name} may do");
            warn_of_nodes_behind(&changed, "do what they could until it hears of this");
            Ok(())
        }
        UserCommand::Drop { name } => {
            let changed = call(node, "DELETE", &path(name, ""), None)?;
            println!("dropped user {name}");
            warn_of_nodes_behind(&changed, "log in as this user until it hears of this");
            Ok(())
        }
        UserCommand::List => {
            let users = call(node, "GET", "/v1/users", None)?;
            if node.json {
                println!("{users:#}");
            } else {
                print(&users);
            }
            Ok(())
        }
    }
}

/// A user is of little use where everybody may do everything.
fn note_if_open(node: &NodeArgs) -> Result<(), ExitError> {
    let users = call(node, "GET", "/v1/users", None)?;
    let admin = users.as_array().into_iter().flatten().find(|user| user["name"] == User::ADMIN);
    if admin.is_some_and(|admin| admin["has_password"] == false) {
        println!(
            "the user admin has no password: unless the configuration of a node names users, whoever connects may do \
             everything. `tessera user alter admin` closes that"
        );
    }
    Ok(())
}

fn print(users: &Value) {
    println!("{:24} {:9} {:14} rights", "name", "password", "kept in");
    for user in users.as_array().into_iter().flatten() {
        let kept = if user["is_configured"] == true { "configuration" } else { "cluster" };
        let password = if user["has_password"] == true { "yes" } else { "no" };
        let places: Vec<String> = user["places"].as_array().into_iter().flatten().map(describe).collect();
        let places = if places.is_empty() { "none".into() } else { places.join("; ") };
        println!("{:24} {password:9} {kept:14} {places}", user["name"].as_str().unwrap_or("-"));
    }
}

/// What is decided in one place, in words.
fn describe(place: &Value) -> String {
    let decided = place["permissions"].as_object().into_iter().flatten();
    let words: Vec<String> = decided
        .map(|(right, is_given)| if *is_given == true { right.clone() } else { format!("not {right}") })
        .collect();
    let place = match (place["database"].as_str(), place["table"].as_str()) {
        (Some(database), _) => format!(" in database {database}"),
        (_, Some(table)) => format!(" in table {table}"),
        _ => String::new(),
    };
    words.join(", ") + &place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_described() {
        let place = json!({ "database": "test", "permissions": { "read": true, "write": false } });
        assert_eq!(describe(&place), "read, not write in database test");
        assert_eq!(describe(&json!({ "permissions": { "config": true } })), "config");
    }
}
