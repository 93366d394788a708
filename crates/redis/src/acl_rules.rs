//! The rules of ACL SETUSER, as far as they say something about users of Tessera: passwords, and which categories of commands a user may
//! give, everywhere or in a selector `(table:NAME +@read)` or `(database:NAME +@read)`.

use std::collections::BTreeMap;
use tessera_types::{PermissionChanges, Permissions, Right, Rights, Scope};

/// What is to become of a user.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    /// The password from now on, or that none is needed; `None` if that stays.
    pub(crate) password: Option<Option<String>>,
    /// What may be done is to be forgotten before the changes are made.
    pub(crate) is_reset: bool,
    pub(crate) changes: BTreeMap<Scope, PermissionChanges>,
}

const ALL: [Right; 3] = [Right::Read, Right::Write, Right::Config];

/// The rights that a category of commands needs.
fn category(name: &str) -> Option<&'static [Right]> {
    match name {
        "@read" => Some(&ALL[..1]),
        "@write" => Some(&ALL[1..2]),
        "@admin" => Some(&ALL[2..]),
        "@all" => Some(&ALL),
        _ => None,
    }
}

impl Rules {
    /// Reads the rules that follow the name of a user.
    ///
    /// # Errors
    /// What is wrong with one of them, or that users here cannot be so.
    pub(crate) fn read(arguments: &[&[u8]]) -> Result<Self, String> {
        let mut rules = Self::default();
        for argument in arguments {
            let Ok(rule) = std::str::from_utf8(argument) else { return Err("a rule is not in UTF-8".into()) };
            match rule.to_ascii_lowercase().as_str() {
                "on" | "~*" | "allkeys" | "&*" | "allchannels" | "resetchannels" | "sanitize-payload" => {}
                "nopass" => rules.password = Some(None),
                "reset" => {
                    rules.is_reset = true;
                    rules.changes.clear();
                }
                "allcommands" => rules.change(Scope::Global, "+@all")?,
                "nocommands" => rules.change(Scope::Global, "-@all")?,
                _ if rule.starts_with('>') => rules.password = Some(Some(rule[1..].into())),
                _ if rule.starts_with(['+', '-']) => rules.change(Scope::Global, rule)?,
                _ if rule.starts_with('(') && rule.ends_with(')') => rules.selector(&rule[1..rule.len() - 1])?,
                "off" => return Err("a user cannot be turned off here: drop it with ACL DELUSER".into()),
                _ if rule.starts_with('~') || rule.starts_with('%') => {
                    return Err(format!(
                        "'{rule}': rights hold in tables here, as in (table:NAME +@read), not for patterns of keys"
                    ));
                }
                _ if rule.starts_with(['#', '!', '<']) || rule.eq_ignore_ascii_case("resetpass") => {
                    return Err("a user has one password here, which >PASSWORD sets, or none (nopass)".into());
                }
                _ => return Err(format!("'{rule}' is no rule that this server knows")),
            }
        }
        Ok(rules)
    }

    fn selector(&mut self, text: &str) -> Result<(), String> {
        let mut words = text.split_ascii_whitespace();
        let scope = match words.next().and_then(|word| word.split_once(':')) {
            Some(("table", name)) if !name.is_empty() => Scope::Table(name.into()),
            Some(("database", name)) if !name.is_empty() => Scope::Database(name.into()),
            _ => return Err(format!("({text}): a selector begins with table:NAME or database:NAME here")),
        };
        // It is said to decide nothing there, if nothing follows.
        self.changes.insert(scope.clone(), ALL.map(|right| (right, None)).into());
        words.try_for_each(|word| self.change(scope.clone(), word))
    }

    fn change(&mut self, scope: Scope, rule: &str) -> Result<(), String> {
        let is_given = rule.starts_with('+');
        let name = rule.strip_prefix(['+', '-']).map(str::to_ascii_lowercase);
        let rights = name.and_then(|name| category(&name)).ok_or_else(|| {
            format!("'{rule}': commands are allowed by category here: +@read, +@write, +@admin, +@all, or with - in the place of +")
        })?;
        // What is not given everywhere is not given: nothing has to deny it.
        let decision = if is_given { Some(true) } else { (scope != Scope::Global).then_some(false) };
        self.changes.entry(scope).or_default().extend(rights.iter().map(|right| (*right, decision)));
        Ok(())
    }

    /// The rights of a user who had none.
    pub(crate) fn rights(&self) -> Rights {
        let mut rights = Rights::default();
        for (scope, changes) in &self.changes {
            rights.set(scope, Permissions::NONE.changed(changes));
        }
        rights
    }

    /// What has to change for a user who may do this already.
    pub(crate) fn changes_of(&self, rights: &Rights) -> BTreeMap<Scope, PermissionChanges> {
        let mut changes = BTreeMap::new();
        if self.is_reset {
            let nothing: PermissionChanges = Right::ALL.map(|right| (right, None)).into();
            changes.extend(rights.places().map(|(scope, _)| (scope, nothing.clone())));
        }
        for (scope, own) in &self.changes {
            changes.entry(scope.clone()).or_insert_with(PermissionChanges::new).extend(own);
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[&str]) -> Result<Rules, String> {
        Rules::read(&text.iter().map(|rule| rule.as_bytes()).collect::<Vec<_>>())
    }

    #[test]
    fn rules_say_what_a_user_may_do() {
        let rules =
            read(&["on", ">secret", "~*", "+@read", "(table:sessions +@write -@read)", "resetchannels"]).unwrap();
        assert_eq!(rules.password, Some(Some("secret".into())));
        let rights = rules.rights();
        assert!(rights.may_in_table(Right::Read, "any") && !rights.may_in_table(Right::Write, "any"));
        assert!(rights.may_in_table(Right::Write, "sessions") && !rights.may_in_table(Right::Read, "sessions"));
        let again = read(&["reset", "nopass", "+@all", "-@admin"]).unwrap();
        assert_eq!(again.password, Some(None));
        let mut after = rights.clone();
        for (scope, changes) in again.changes_of(&rights) {
            let own = after.at(&scope).changed(&changes);
            after.set(&scope, own);
        }
        assert_eq!(after, again.rights());
        assert!(after.may_in_table(Right::Write, "any") && !after.may(Right::Config));
        assert_eq!(read(&[]), Ok(Rules::default()));
    }

    #[test]
    fn what_users_here_cannot_be_is_refused() {
        for rule in [
            "(table:t read)",
            "(table:t \u{e9}read)",
            "(table:t ~@read)",
            "off",
            "~user:*",
            "%R~x",
            "+get",
            "-@fast",
            "#0123",
            "<old",
            "resetpass",
            "(+@read)",
            "(table: +@read)",
            "what",
        ] {
            assert!(read(&["on", rule]).is_err(), "{rule}");
        }
    }
}
