//! Rights in the words of Redis: which commands they are for, and how ACL LIST shows them.

use crate::commands::Flags;
use tessera_access::{Rights, User};

/// Whether the rights are enough for a command with these flags.
pub(crate) fn allow(rights: &Rights, flags: Flags) -> bool {
    (!flags.read || rights.read) && (!flags.write || rights.write) && (!flags.admin || rights.administer)
}

/// The user as ACL LIST shows one.
pub(crate) fn describe(user: &User) -> String {
    let Rights { read, write, administer, tables } = &user.rights;
    let mut text = format!("user {} on", user.name);
    text += if user.password.is_none() { " nopass" } else { " #<hidden>" };
    text += " ~*";
    for (may, category) in [(*read, "read"), (*write, "write"), (*administer, "admin")] {
        text += if may { " +@" } else { " -@" };
        text += category;
    }
    if let Some(tables) = tables {
        text += &format!(" tables:{}", tables.join(","));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_described_as_redis_does() {
        let mut user = User::everybody();
        assert_eq!(describe(&user), "user default on nopass ~* +@read +@write +@admin");
        (user.rights.administer, user.rights.tables) = (false, Some(vec!["one".into(), "two".into()]));
        user.password = Some(tessera_access::Password::Sha256([0; 32]));
        assert_eq!(describe(&user), "user default on #<hidden> ~* +@read +@write -@admin tables:one,two");
    }
}
