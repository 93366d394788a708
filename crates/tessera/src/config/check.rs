//! What settings must be so that a node may start.

use super::Config;
use crate::exit::ExitError;
use std::net::IpAddr;
use tessera_access::Token;
use tessera_types::Limits;

pub(super) fn check(config: &Config) -> Result<(), ExitError> {
    let refuse = |text: String| Err(ExitError::Config(text));
    if config.has_tls() == config.tls.key.as_os_str().is_empty() {
        return refuse("tls.certificate and tls.key go together".into());
    }
    config.users().map_err(ExitError::Config)?;
    if !config.admin.token_sha256.is_empty() && Token::from_hex(&config.admin.token_sha256).is_none() {
        return refuse("admin.token_sha256 is not 64 hexadecimal digits".into());
    }
    let open_redis = config.redis.users.is_empty() || config.redis.users.iter().any(|user| !user.has_password());
    check_bind(config, "redis", config.redis.bind, open_redis)?;
    for text in &config.pegasus.open_addresses {
        text.parse::<tessera_pegasus::Network>()
            .map_err(|error| ExitError::Config(format!("pegasus.open_addresses: {error}")))?;
    }
    // Its clients have no password to give. Those of some addresses were let in by name.
    let is_pegasus_open = config.pegasus.port != 0 && (!config.has_users() || !config.pegasus.open_tables.is_empty());
    check_bind(config, "pegasus", config.pegasus.bind, is_pegasus_open)?;
    // With users, nobody gets in.
    check_bind(config, "reql", config.reql.bind, config.reql.port != 0 && !config.has_users())?;
    if config.redis.databases > 1024 {
        return refuse("redis.databases is at most 1024".into());
    }
    if config.reql.query_threads == 0 || config.reql.query_threads > 1024 {
        return refuse("reql.query_threads is between 1 and 1024".into());
    }
    if (1..1 << 20).contains(&config.reql.index_bytes_per_second) {
        return refuse(
            "reql.index_bytes_per_second is below 1 MiB: indexes would never be built; 0 sets no limit".into(),
        );
    }
    if config.reql.user_queries > 1_000_000 {
        return refuse("reql.user_queries is at most 1000000; 0 is for no limit".into());
    }
    if !(1..=100).contains(&config.reql.user_threads_percent) {
        return refuse("reql.user_threads_percent is between 1 and 100".into());
    }
    if config.reql.javascript_workers > 256 {
        return refuse("reql.javascript_workers is at most 256".into());
    }
    if config.rocksdb.read_threads == 0 || config.rocksdb.read_threads > 1024 {
        return refuse("rocksdb.read_threads is between 1 and 1024".into());
    }
    check_bind(config, "admin", config.admin.bind, config.admin.token_sha256.is_empty())?;
    if config.cluster_secret()?.is_empty() && !config.cluster.bind.is_loopback() {
        return refuse(format!(
            "cluster.bind is {}, which others can reach, and there is no secret by which nodes know each other: write what \
             `openssl rand -hex 32` prints into a file, copy it to all nodes, and name it in cluster.secret_file; or bind to \
             127.0.0.1",
            config.cluster.bind
        ));
    }
    if config.cluster.bind.is_unspecified() && config.cluster.advertise.is_empty() {
        return refuse(format!(
            "cluster.bind is {}, under which no other node finds this one: set cluster.advertise",
            config.cluster.bind
        ));
    }
    if let Some(address) = config.cluster.join.iter().find(|address| !may_be_address(address)) {
        return refuse(format!(
            "cluster.join (--join) has {address:?}, which is not HOST:PORT: it is the cluster address of a node, such as 10.0.0.1:29015"
        ));
    }
    let limits = &config.limits;
    let ceilings: [(&str, u64, u64); 4] = [
        ("hash_key_bytes", limits.hash_key_bytes as u64, Limits::HASH_KEY_BYTES_CEILING as u64),
        ("value_bytes", limits.value_bytes as u64, Limits::WRITE_BYTES_CEILING as u64),
        ("write_bytes", limits.write_bytes as u64, Limits::WRITE_BYTES_CEILING as u64),
        ("partitions_per_table", u64::from(limits.partitions_per_table), u64::from(Limits::PARTITIONS_CEILING)),
    ];
    for (name, value, ceiling) in ceilings {
        if value > ceiling {
            return refuse(format!("limits.{name} is {value}; at most {ceiling} is possible"));
        }
    }
    if config.cluster.move_bytes_per_second < 1 << 20 {
        return refuse("cluster.move_bytes_per_second is below 1 MiB: replicas would never be complete".into());
    }
    if config.log.segment_bytes < 1 << 20 {
        return refuse("log.segment_bytes is below 1 MiB".into());
    }
    Ok(())
}

/// Whether something has the form `HOST:PORT`. Whether there is such a host is not asked.
fn may_be_address(text: &str) -> bool {
    let is_host =
        |host: &str| !host.is_empty() && !host.contains(|letter: char| letter.is_whitespace() || letter == '/');
    text.rsplit_once(':').is_some_and(|(host, port)| is_host(host) && port.parse::<u16>().is_ok_and(|port| port > 0))
}

fn check_bind(config: &Config, section: &str, address: IpAddr, is_open: bool) -> Result<(), ExitError> {
    if address.is_loopback() || !is_open || config.insecure {
        return Ok(());
    }
    let how = match section {
        "redis" => "give every user under redis.users a password_hash",
        "pegasus" => "set pegasus.port to 0 if nobody needs it",
        "reql" => "set reql.port to 0 if nobody needs it",
        _ => "set admin.token_sha256",
    };
    Err(ExitError::Config(format!(
        "{section}.bind is {address}, which others can reach, and needs no authentication: {how}, bind to 127.0.0.1, or \
         start with --insecure"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::UserSection;

    /// They were asked for two minutes.
    #[test]
    fn what_is_no_address_is_not_joined() {
        let mut config = Config::default();
        for address in ["10.0.0.1:29015", "db1.example:29015", "[::1]:29015", "::1:29015", "node_1:1"] {
            config.cluster.join = vec![address.into()];
            assert!(check(&config).is_ok(), "{address}");
        }
        for address in [
            "nonsense",
            "10.0.0.1",
            "10.0.0.1:",
            ":29015",
            "host:port",
            "host:0",
            "host:70000",
            "http://h:1",
            "a b:1",
            "",
        ] {
            config.cluster.join = vec!["10.0.0.1:29015".into(), address.into()];
            let error = check(&config).unwrap_err().to_string();
            assert!(error.contains(&format!("{address:?}, which is not HOST:PORT")), "{error}");
        }
    }

    #[test]
    fn an_open_address_needs_authentication() {
        let mut config = Config::default();
        assert!(check(&config).is_ok());
        config.redis.bind = "0.0.0.0".parse().unwrap();
        assert!(check(&config).is_err());
        config.redis.users = vec![UserSection {
            name: "default".into(),
            password_hash: None,
            password_sha256: Some("0".repeat(64)),
            access: vec!["read".into()],
            tables: None,
            default_table: None,
        }];
        assert!(check(&config).is_ok());
        config.admin.bind = "::".parse().unwrap();
        assert!(check(&config).is_err());
        config.insecure = true;
        assert!(check(&config).is_ok());
        config.cluster.bind = "10.0.0.1".parse().unwrap();
        assert!(check(&config).is_err(), "nodes must know each other whatever is said");
        config.cluster.secret = "known to all nodes".into();
        assert!(check(&config).is_ok());
    }
}
