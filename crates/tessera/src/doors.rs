//! Which doors of a node are open to whom, in words: what the node says when it starts, and in `tessera status`.

use crate::config::Config;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use tessera_access::User;

/// A door that somebody should know of.
#[derive(Debug, PartialEq, Eq)]
pub struct Door {
    pub words: String,
    /// Whether others than the processes of this machine come through without saying who they are, or can be overheard.
    pub is_risky: bool,
}

impl Config {
    /// Whether Redis clients have to say who they are, which clients of Apache Pegasus cannot.
    pub fn has_users(&self) -> bool {
        !self.redis.users.is_empty()
    }

    /// Whether clients have to speak TLS, those of Apache Pegasus aside.
    pub fn has_tls(&self) -> bool {
        !self.tls.certificate.as_os_str().is_empty()
    }

    /// Whether the Pegasus face lets nobody in, if the others have users or not.
    pub fn is_pegasus_closed(&self, has_users: bool) -> bool {
        let section = &self.pegasus;
        section.port == 0 || has_users && section.open_addresses.is_empty() && section.open_tables.is_empty()
    }

    /// Whether no driver of RethinkDB can log in as one of the users of the configuration.
    pub fn is_reql_closed(&self) -> bool {
        let may_come_in = |user: &User| user.scram_password().is_some();
        let mut users = self.redis.users.iter().filter_map(|section| section.user().ok());
        self.reql.port == 0 || self.has_users() && !users.any(|user| may_come_in(&user))
    }
}

/// All that is worth saying. `is_closed` says whether `admin` of the cluster has a password, so that all have to log in.
pub fn doors(config: &Config, is_closed: bool) -> Vec<Door> {
    let mut doors = Vec::new();
    let has_users = config.has_users() || is_closed;
    let has_tls = config.has_tls();
    let mut outside = |name: &str, bind: IpAddr, is_guarded: bool, guard: &str, is_encrypted: bool| {
        if bind.is_loopback() {
            return;
        }
        let mut lacks = Vec::new();
        lacks.extend((!is_guarded).then_some(guard));
        lacks.extend((!is_encrypted).then_some("TLS"));
        let words = if lacks.is_empty() {
            format!("{name} on {bind} can be reached from other machines, with authentication and TLS")
        } else {
            format!("{name} on {bind} can be reached from other machines, without {}", lacks.join(" and without "))
        };
        doors.push(Door { words, is_risky: !lacks.is_empty() });
    };
    let all_have_passwords = config.redis.users.iter().all(|user| user.has_password());
    let is_redis_guarded = has_users && all_have_passwords;
    outside("the Redis port", config.redis.bind, is_redis_guarded, "a password for everybody", has_tls);
    if !config.is_pegasus_closed(has_users) {
        outside("the Pegasus ports", config.pegasus.bind, false, "a password", false);
    }
    let is_reql_closed = config.is_reql_closed() && !is_closed;
    if !is_reql_closed {
        outside("the ReQL port", config.reql.bind, has_users, "a password", has_tls);
    }
    let is_admin_guarded = !config.admin.token_sha256.is_empty() || is_closed;
    outside("the admin port", config.admin.bind, is_admin_guarded, "a token", has_tls);
    // Without a secret it does not start.
    outside("the cluster port", config.cluster.bind, true, "a secret", false);
    doors.extend(cluster_without_secret(config, is_closed));
    doors.extend(secret_for_all_to_read(config));
    if has_users && config.pegasus.port != 0 {
        doors.push(pegasus_beside_users(config));
    }
    if config.reql.port != 0 && is_reql_closed {
        let words = "the ReQL port lets no user of the configuration in, since none has a password_hash that `tessera \
                     hash-password --scram` has printed; users of the cluster (`tessera user`) come in";
        doors.push(Door { words: words.into(), is_risky: false });
    }
    doors
}

/// On loopback a node starts without a secret. Then the cluster port takes whoever reaches it for a node that wants to join, which
/// matters where the other ports ask who somebody is.
fn cluster_without_secret(config: &Config, is_closed: bool) -> Option<Door> {
    let section = &config.cluster;
    let has_secret = !section.secret.is_empty() || !section.secret_file.as_os_str().is_empty();
    let is_guarded_elsewhere = is_closed || config.has_users() || !config.admin.token_sha256.is_empty();
    (!has_secret && is_guarded_elsewhere).then(|| Door {
        words: "the cluster port has no secret: every process of this machine may join the cluster as a node, and read and \
                change all records without a password; cluster.secret_file keeps them out"
            .into(),
        is_risky: true,
    })
}

fn secret_for_all_to_read(config: &Config) -> Option<Door> {
    let file = &config.cluster.secret_file;
    let mode = std::fs::metadata(file).ok()?.permissions().mode();
    (mode & 0o007 != 0).then(|| Door {
        words: format!(
            "every user of this machine can read or change the cluster's secret in {}: chmod 600 it",
            file.display()
        ),
        is_risky: true,
    })
}

fn pegasus_beside_users(config: &Config) -> Door {
    let section = &config.pegasus;
    let (addresses, tables) = (section.open_addresses.join(", "), section.open_tables.join(", "));
    let words = match (addresses.as_str(), tables.as_str()) {
        ("", "") => "the Pegasus ports are closed, since others have to log in and Pegasus clients have no passwords; \
             pegasus.open_addresses and pegasus.open_tables open them for some"
            .to_string(),
        (addresses, "") => format!("Pegasus clients from {addresses} may do everything without a password"),
        ("", tables) => format!("Pegasus clients may use the tables {tables} without a password"),
        (addresses, tables) => {
            format!("Pegasus clients may use the tables {tables} without a password, and everything from {addresses}")
        }
    };
    Door { words, is_risky: !config.is_pegasus_closed(true) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::UserSection;

    fn with_user(password_sha256: Option<String>) -> Config {
        let mut config = Config::default();
        let (access, tables, default_table) = (vec!["read".into()], None, None);
        config.redis.users = vec![UserSection {
            name: "default".into(),
            password_hash: None,
            password_sha256,
            access,
            tables,
            default_table,
        }];
        config
    }

    #[test]
    fn a_node_on_loopback_has_nothing_to_say() {
        assert_eq!(doors(&Config::default(), false), []);
    }

    #[test]
    fn passwords_are_of_little_use_beside_a_cluster_port_without_a_secret() {
        let mut config = with_user(Some("0".repeat(64)));
        (config.pegasus.port, config.reql.port) = (0, 0);
        let said = doors(&config, false);
        assert!(
            said.len() == 1 && said[0].is_risky && said[0].words.contains("the cluster port has no secret"),
            "{said:?}"
        );
        config.cluster.secret = "known to all nodes".into();
        assert_eq!(doors(&config, false), []);
        let mut config = Config::default();
        config.admin.token_sha256 = "0".repeat(64);
        assert!(doors(&config, false)[0].words.contains("the cluster port has no secret"));
    }

    #[test]
    fn the_password_of_admin_guards_all_doors() {
        let mut config = Config::default();
        config.cluster.secret = "known to all nodes".into();
        (config.redis.bind, config.reql.bind) = ("0.0.0.0".parse().unwrap(), "0.0.0.0".parse().unwrap());
        config.admin.bind = "0.0.0.0".parse().unwrap();
        let without =
            |is_closed, what: &str| doors(&config, is_closed).iter().filter(|door| door.words.contains(what)).count();
        assert_eq!((without(false, "without a password"), without(false, "without a token")), (2, 1));
        assert_eq!((without(true, "without a password"), without(true, "without a token")), (0, 0));
        assert_eq!(without(true, "the Pegasus ports are closed"), 1);
    }

    #[test]
    fn a_secret_that_everybody_can_read_is_told() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut config = Config::default();
        config.cluster.secret_file = file.path().into();
        let with_mode = |mode| {
            std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            doors(&config, false)
        };
        assert_eq!(with_mode(0o640), []);
        let said = with_mode(0o644);
        assert!(said.len() == 1 && said[0].is_risky && said[0].words.ends_with("chmod 600 it"), "{said:?}");
    }

    #[test]
    fn what_can_be_reached_from_elsewhere_is_told() {
        let mut config = with_user(None);
        config.cluster.secret = "known to all nodes".into();
        (config.pegasus.port, config.reql.port) = (0, 0);
        config.redis.bind = "10.0.0.1".parse().unwrap();
        let said = doors(&config, false);
        let words = "the Redis port on 10.0.0.1 can be reached from other machines, without a password for everybody and \
                     without TLS";
        assert_eq!(said, [Door { words: words.into(), is_risky: true }]);
        config = with_user(Some("0".repeat(64)));
        config.cluster.secret = "known to all nodes".into();
        (config.pegasus.port, config.reql.port) = (0, 0);
        config.redis.bind = "10.0.0.1".parse().unwrap();
        config.tls.certificate = "certificate.pem".into();
        let said = doors(&config, false);
        assert!(!said[0].is_risky && said[0].words.ends_with("with authentication and TLS"), "{said:?}");
    }

    #[test]
    fn a_reql_port_that_others_reach_is_told() {
        let mut config = Config::default();
        config.reql.bind = "10.0.0.1".parse().unwrap();
        let said = doors(&config, false);
        assert!(said.len() == 1 && said[0].is_risky, "{said:?}");
        let words = "the ReQL port on 10.0.0.1 can be reached from other machines, without a password and without TLS";
        assert_eq!(said[0].words, words);
        config.reql.port = 0;
        assert_eq!(doors(&config, false), []);
        // Beside users it is closed, unless one of them has a password for it.
        config = with_user(Some("0".repeat(64)));
        (config.pegasus.port, config.cluster.secret) = (0, "known to all nodes".into());
        config.reql.bind = "10.0.0.1".parse().unwrap();
        let said = doors(&config, false);
        assert!(
            said.len() == 1 && said[0].words.contains("the ReQL port lets no user of the configuration in"),
            "{said:?}"
        );
        let user = &mut config.redis.users[0];
        user.password_sha256 = None;
        user.password_hash = Some(tessera_access::ScramPassword::new(b"secret", 10).to_string());
        let said = doors(&config, false);
        assert!(
            said.len() == 1 && said[0].words.ends_with("can be reached from other machines, without TLS"),
            "{said:?}"
        );
    }

    #[test]
    fn pegasus_is_closed_beside_users_unless_somebody_opens_it() {
        assert!(!Config::default().is_pegasus_closed(false) && Config::default().is_pegasus_closed(true));
        let mut config = with_user(Some("0".repeat(64)));
        config.cluster.secret = "known to all nodes".into();
        assert!(config.is_pegasus_closed(true));
        assert!(doors(&config, false)[0].words.contains("the Pegasus ports are closed"));
        config.pegasus.open_tables = vec!["temp".into()];
        assert!(!config.is_pegasus_closed(true));
        assert!(doors(&config, false)[0].words.contains("may use the tables temp"));
    }
}
