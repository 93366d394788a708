//! The command that is written beside a result, so that it can be given again.

/// What stands in the place of a secret.
const HIDDEN: &str = "***";
/// Options, and properties of YCSB, whose values are secrets.
const SECRETS: [&str; 2] = ["--password", "redis.password"];

/// How this program was called, without its secrets: results are shown to others.
pub fn of_this_process() -> String {
    without_secrets(std::env::args())
}

fn without_secrets(arguments: impl Iterator<Item = String>) -> String {
    let mut is_secret = false;
    let shown = arguments.map(|argument| {
        if std::mem::replace(&mut is_secret, SECRETS.contains(&argument.as_str())) {
            return HIDDEN.to_string();
        }
        match argument.split_once('=') {
            Some((name, _)) if SECRETS.iter().any(|secret| name.ends_with(secret)) => format!("{name}={HIDDEN}"),
            _ => argument,
        }
    });
    shown.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_left_out() {
        let shown = |line: &str| without_secrets(line.split(' ').map(String::from));
        assert_eq!(shown("tessera bench run --password x --mix a"), "tessera bench run --password *** --mix a");
        assert_eq!(shown("t --password=x=y -p redis.password=z"), "t --password=*** -p redis.password=***");
        assert_eq!(shown("t -predis.password=z --mix read"), "t -predis.password=*** --mix read");
    }
}
