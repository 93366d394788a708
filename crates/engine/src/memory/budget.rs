use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};

/// `[memory]` in the config file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemoryConfig {
    /// Bytes that the records of all memory tables on the node may take, index included. 0 means half of the machine's
    /// memory.
    pub limit_bytes: u64,
}

#[allow(clippy::derivable_impls, reason = "the default is a decision, not an accident of zero")]
impl Default for MemoryConfig {
    fn default() -> Self {
        Self { limit_bytes: 0 }
    }
}

/// The memory that all memory tables of a node share.
#[derive(Debug)]
pub struct MemoryBudget {
    limit: u64,
    used: AtomicU64,
}

impl MemoryBudget {
    /// The limit of the configuration, or half the machine's memory if that is 0.
    pub fn new(config: &MemoryConfig) -> Self {
        let limit = if config.limit_bytes == 0 { machine_memory_bytes() / 2 } else { config.limit_bytes };
        Self { limit, used: AtomicU64::new(0) }
    }

    /// Bytes that records and their index may take.
    pub fn limit_bytes(&self) -> u64 {
        self.limit
    }

    /// Bytes that they take now.
    pub fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    pub(super) fn spare_bytes(&self) -> u64 {
        self.limit.saturating_sub(self.used_bytes())
    }

    pub(super) fn is_exceeded(&self) -> bool {
        self.used_bytes() > self.limit
    }

    pub(super) fn change(&self, before: usize, after: usize) {
        if after >= before {
            self.used.fetch_add((after - before) as u64, Ordering::Relaxed);
        } else {
            self.used.fetch_sub((before - after) as u64, Ordering::Relaxed);
        }
    }
}

fn machine_memory_bytes() -> u64 {
    // SAFETY: plain queries of system constants.
    let (pages, page_size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).unwrap_or(0) * u64::try_from(page_size).unwrap_or(0)
}
