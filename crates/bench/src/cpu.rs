//! CPU time of processes.

use std::time::Duration;

/// User and system time of a process with all its threads so far; `None` if there is no such process.
pub fn of_process(pid: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name is in parentheses and may hold anything, so fields are counted behind it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    // SAFETY: a plain query of a system constant.
    let per_second = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok()?.max(1);
    Some(Duration::from_millis(ticks * 1_000 / per_second))
}

/// CPU time of the calling thread.
pub fn of_this_thread() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a plain call with a structure of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Runs the calling thread on one core only.
pub fn pin_to(core: usize) -> std::io::Result<()> {
    // SAFETY: the set is initialised by CPU_ZERO's effect of being all zero bits, and passed with its size.
    let outcome = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    if outcome == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
