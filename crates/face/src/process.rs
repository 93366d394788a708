//! What the faces tell of the process that they are in.

/// Bytes of the process that are in memory; 0 where the system does not say.
pub fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}
