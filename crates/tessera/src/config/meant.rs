//! Which setting somebody may have meant who wrote one that there is not.

/// The most letters that may have to be changed until a name is the one that was meant.
const MOST_CHANGES: usize = 3;

/// A question that names the setting that was probably meant, if `message` says that a field is unknown, as serde does: ``unknown
/// field `prot`, expected one of `bind`, `port` ``.
pub(super) fn question(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("unknown field `")?;
    let (wrong, rest) = rest.split_once('`')?;
    let known = rest.split('`').skip(1).step_by(2);
    let (changes, nearest) = known.map(|name| (strsim::levenshtein(wrong, name), name)).min()?;
    let is_near = changes <= MOST_CHANGES.min(wrong.chars().count() / 2);
    is_near.then(|| format!("Did you mean `{nearest}`?"))
}

/// The message, and the question if there is one.
pub(super) fn with_question(message: &str) -> String {
    let message = message.trim_end();
    match question(message) {
        Some(question) => format!("{message}. {question}"),
        None => message.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_setting_is_named_if_one_is_near() {
        let question = |wrong: &str| {
            question(&format!("unknown field `{wrong}`, expected one of `bind`, `port`, `max_clients`, `users`"))
        };
        for (wrong, meant) in [("prot", "port"), ("maxclients", "max_clients"), ("user", "users"), ("ports", "port")] {
            assert_eq!(question(wrong).unwrap(), format!("Did you mean `{meant}`?"));
        }
        for wrong in ["colour", "x", ""] {
            assert_eq!(question(wrong), None, "{wrong}");
        }
        assert_eq!(super::question("invalid type: string \"x\", expected u16"), None);
        assert_eq!(super::question("unknown field `x`, there are no fields"), None);
    }
}
