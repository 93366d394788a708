//! What Prometheus asks of any process: its CPU time, memory, files and start, under the names that its own clients use.

use crate::scrape::Scrape;
use rustix::process::{Resource, getrlimit};
use std::fs;

pub(crate) fn measure(scrape: &mut Scrape) {
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    scrape.set("tessera_build_info", "1, with the version as a label", &version, 1.0);
    let Some(values) = Values::read() else { return }; // there is no /proc
    for (name, help, value) in [
        ("process_cpu_seconds_total", "CPU time of all threads", values.cpu_seconds),
        ("process_resident_memory_bytes", "Memory that is not swapped out", values.resident_bytes),
        ("process_virtual_memory_bytes", "Address space", values.virtual_bytes),
        ("process_start_time_seconds", "When the process was started, since 1970", values.start_seconds),
        ("process_open_fds", "Files, sockets and the like that are open", values.open_files),
    ] {
        scrape.set(name, help, &[], value);
    }
    // Absent if there is no limit.
    if let Some(limit) = getrlimit(Resource::Nofile).current {
        scrape.set("process_max_fds", "How many files, sockets and the like may be open", &[], limit as f64);
    }
}

struct Values {
    cpu_seconds: f64,
    resident_bytes: f64,
    virtual_bytes: f64,
    start_seconds: f64,
    open_files: f64,
}

impl Values {
    fn read() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        // The name of the program, in brackets, may have spaces in it.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        // Fields are counted from 1 in proc(5), and the first one here is the third.
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        let boot = fs::read_to_string("/proc/stat").ok()?;
        let boot: f64 = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        Some(Self {
            cpu_seconds: (field(14)? + field(15)?) / ticks,
            resident_bytes: field(24)? * rustix::param::page_size() as f64,
            virtual_bytes: field(23)?,
            start_seconds: boot + field(22)? / ticks,
            open_files: fs::read_dir("/proc/self/fd").ok()?.count() as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    #[test]
    fn a_process_knows_itself() {
        let values = Values::read().expect("Linux has /proc");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64();
        assert!(values.start_seconds > 1e9 && values.start_seconds <= now + 5.0, "{}", values.start_seconds);
        assert!(values.resident_bytes > 1e5 && values.virtual_bytes > values.resident_bytes);
        assert!(values.open_files >= 3.0 && values.cpu_seconds >= 0.0);
    }
}
