//! Rights in the words of Redis: which commands they are for, and how ACL LIST shows them.

use crate::commands::Flags;
use tessera_access::User;
use tessera_types::{Right, Scope};

/// What a user may do with the chosen table, or where none is chosen, with those about which nothing more specific is decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allowed {
    pub(crate) read: bool,
    pub(crate) write: bool,
    /// Look at the node and its other clients, and change settings.
    pub(crate) administer: bool,
}

impl Allowed {
    pub(crate) fn of(user: &User, table: Option<&str>) -> Self {
        let rights = &user.rights;
        let may = |right| table.map_or_else(|| rights.may(right), |table| rights.may_in_table(right, table));
        Self { read: may(Right::Read), write: may(Right::Write), administer: rights.may(Right::Config) }
    }

    /// Whether that is enough for a command with these flags.
    pub(crate) fn includes(self, flags: Flags) -> bool {
        (!flags.read || self.read) && (!flags.write || self.write) && (!flags.admin || self.administer)
    }
}

/// Whether the user reaches a table at all.
pub(crate) fn reaches(user: &User, table: &str) -> bool {
    [Right::Read, Right::Write, Right::Config].iter().any(|right| user.rights.may_in_table(*right, table))
}

/// The categories of commands as the rights that they need.
const CATEGORIES: [(Right, &str); 3] = [(Right::Read, "read"), (Right::Write, "write"), (Right::Config, "admin")];

/// The user as ACL LIST shows one.
pub(crate) fn describe(user: &User) -> String {
    let password = if user.password.is_none() { "nopass" } else { "#<hidden>" };
    let (commands, selectors) = shown(user);
    let mut text = format!("user {} on {password} ~* {commands}", user.name);
    for selector in selectors {
        text += &format!(" ({selector})");
    }
    text
}

/// Which commands a user may give everywhere, and in which tables and databases others, as rules of ACL SETUSER.
pub(crate) fn shown(user: &User) -> (String, Vec<String>) {
    let sign = |is_given| if is_given { "+@" } else { "-@" };
    let commands = CATEGORIES.map(|(right, category)| format!("{}{category}", sign(user.rights.may(right))));
    let mut selectors = Vec::new();
    for (scope, permissions) in user.rights.places() {
        let (kind, name) = match &scope {
            Scope::Global => continue,
            Scope::Database(name) => ("database", name),
            Scope::Table(name) => ("table", name),
        };
        let decided = CATEGORIES.iter().filter_map(|(right, category)| Some((permissions.get(*right)?, category)));
        let words = decided.map(|(is_given, category)| format!(" {}{category}", sign(is_given)));
        selectors.push(format!("{kind}:{name}{}", words.collect::<String>()));
    }
    (commands.join(" "), selectors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_types::{Permissions, Rights};

    #[test]
    fn users_are_described_as_redis_does() {
        let mut user = User::everybody();
        let system = "(database:rethinkdb +@read +@write +@admin)";
        assert_eq!(describe(&user), format!("user default on nopass ~* +@read +@write +@admin {system}"));
        let read = Permissions::NONE.with(Right::Read, Some(true));
        user.rights = Rights::default();
        user.rights.set(&Scope::Global, read);
        user.rights
            .set(&Scope::Table("one".into()), read.with(Right::Read, Some(false)).with(Right::Write, Some(true)));
        user.password = Some(tessera_access::Password::Sha256([0; 32]));
        assert_eq!(describe(&user), "user default on #<hidden> ~* +@read -@write -@admin (table:one -@read +@write)");
        assert_eq!(Allowed::of(&user, None), Allowed { read: true, ..Allowed::default() });
        assert_eq!(Allowed::of(&user, Some("one")), Allowed { write: true, ..Allowed::default() });
        assert!(reaches(&user, "one") && reaches(&user, "two"));
    }
}
