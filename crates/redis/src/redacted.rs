//! Arguments that nobody is to read in a log.

use std::borrow::Cow;

const REDACTED: &[u8] = b"(redacted)";

/// A command's arguments without passwords: what the slow log may keep. Commands that this server does not have are among
/// them, for whoever writes a log before it knows that.
pub(crate) fn redacted<'a>(arguments: &[&'a [u8]]) -> Vec<Cow<'a, [u8]>> {
    let mut shown: Vec<Cow<'a, [u8]>> = arguments.iter().map(|argument| Cow::Borrowed(*argument)).collect();
    let is = |at: usize, word: &str| {
        arguments.get(at).is_some_and(|argument| argument.eq_ignore_ascii_case(word.as_bytes()))
    };
    let mut hide = |at: usize| {
        if let Some(argument) = shown.get_mut(at) {
            *argument = Cow::Borrowed(REDACTED);
        }
    };
    let all = 1..arguments.len();
    if is(0, "AUTH") {
        all.for_each(hide);
    } else if is(0, "HELLO") || is(0, "MIGRATE") {
        // AUTH user password; MIGRATE also knows AUTH password and AUTH2 user password.
        for at in all.filter(|at| is(*at, "AUTH") || is(*at, "AUTH2")) {
            hide(at + 1);
            if is(0, "HELLO") || is(at, "AUTH2") {
                hide(at + 2);
            }
        }
    } else if is(0, "ACL") && is(1, "SETUSER") {
        (3..arguments.len()).for_each(hide);
    } else if is(0, "CONFIG") && is(1, "SET") {
        for at in (2..arguments.len()).step_by(2).filter(|at| is_secret(arguments[*at])) {
            hide(at + 1);
        }
    }
    shown
}

/// Whether a setting of that name holds a secret.
fn is_secret(setting: &[u8]) -> bool {
    let name = setting.to_ascii_lowercase();
    [&b"pass"[..], b"auth", b"secret", b"token"].iter().any(|word| memchr::memmem::find(&name, word).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        for line in [
            "AUTH hush",
            "auth user hush",
            "HELLO 3 AUTH user hush SETNAME me",
            "hello 3 setname me auth user hush",
            "ACL SETUSER me on >hush ~*",
            "CONFIG SET requirepass hush",
            "CONFIG SET maxclients 10 masterauth hush",
            "MIGRATE host 6379 key 0 1000 AUTH hush",
            "MIGRATE host 6379 key 0 1000 AUTH2 user hush",
        ] {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let shown = redacted(&words).join(&b' ');
            let shown = String::from_utf8(shown).unwrap();
            assert!(!shown.contains("hush") && shown.contains("(redacted)"), "{shown}");
        }
        let words: Vec<&[u8]> = vec![b"CONFIG", b"SET", b"maxclients", b"10"];
        assert_eq!(redacted(&words).concat(), b"CONFIGSETmaxclients10");
        assert_eq!(redacted(&[b"SET", b"AUTH", b"v"]).concat(), b"SETAUTHv");
    }
}
