//! The secret that the nodes of a cluster share.

use super::Config;
use crate::exit::ExitError;
use std::path::Path;

/// Fewer bytes could be guessed from what is overheard between nodes.
const SHORTEST: usize = 16;

impl Config {
    /// The cluster's secret, of the setting or of the file; empty if there is none.
    ///
    /// # Errors
    /// If the file cannot be read, or the secret is too short.
    pub fn cluster_secret(&self) -> Result<Vec<u8>, ExitError> {
        let section = &self.cluster;
        let secret = match (section.secret.as_str(), section.secret_file.as_path()) {
            ("", file) if file == Path::new("") => return Ok(Vec::new()),
            ("", file) => std::fs::read_to_string(file)
                .map_err(|error| ExitError::Config(format!("cluster.secret_file, {}: {error}", file.display())))?,
            (secret, file) if file == Path::new("") => secret.to_string(),
            _ => return Err(ExitError::Config("set cluster.secret or cluster.secret_file, not both".into())),
        };
        let secret = secret.trim();
        if secret.len() < SHORTEST {
            return Err(ExitError::Config(format!(
                "the cluster's secret has {} bytes; it must have {SHORTEST} at least. `openssl rand -hex 32` makes a good one",
                secret.len()
            )));
        }
        Ok(secret.as_bytes().to_vec())
    }

    /// These settings without what nobody should read over somebody's shoulder.
    pub fn without_secrets(&self) -> Self {
        let mut shown = self.clone();
        if !shown.cluster.secret.is_empty() {
            shown.cluster.secret = "not shown".into();
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_comes_from_the_setting_or_from_the_file() {
        let directory = tempfile::TempDir::new().unwrap();
        let file = directory.path().join("secret");
        let mut config = Config::default();
        assert_eq!(config.cluster_secret().unwrap(), b"");
        config.cluster.secret = "fifteen letters".into();
        config.cluster_secret().unwrap_err();
        config.cluster.secret = "of sixteen bytes".into();
        assert_eq!(config.cluster_secret().unwrap(), b"of sixteen bytes");
        assert!(!toml::to_string(&config.without_secrets()).unwrap().contains("sixteen"));
        config.cluster.secret_file.clone_from(&file);
        config.cluster_secret().unwrap_err();
        config.cluster.secret.clear();
        config.cluster_secret().unwrap_err();
        std::fs::write(&file, "as long as it must be\n").unwrap();
        assert_eq!(config.cluster_secret().unwrap(), b"as long as it must be");
    }
}
