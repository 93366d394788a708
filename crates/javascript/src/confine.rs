//! What a worker may do: compute, take memory up to a bound, read from and write to the node that started it, and end. It asks the
//! kernel for that itself before it reads the first program, and none of it can be taken back.

use rustix::process::{Resource, Rlimit, setrlimit};
use std::fs::DirBuilder;
use std::io::{Error, Result};
use std::os::unix::fs::DirBuilderExt as _;

/// Address space on top of what the process has when it begins: the heap of programs, and values on their way.
const SPACE_BYTES: u64 = 512 << 20;
/// Seconds of a processor in all. A node replaces a worker long before.
const PROCESSOR_SECONDS: u64 = 1800;

/// What programs and threads of a worker ask the kernel for. Everything else fails.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getrandom,
    libc::SYS_gettimeofday,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_read,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_sigaltstack,
    libc::SYS_write,
];

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;

/// Closes everything but the standard streams, which the node has chosen.
#[expect(unsafe_code, reason = "no library that is used here has this call")]
pub fn close_files() -> Result<()> {
    // SAFETY: nothing in this process has opened a file yet, so nobody's file is closed.
    checked(unsafe { libc::close_range(3, libc::c_uint::MAX, 0) }.into())
}

/// Makes an empty directory that nobody else finds the current one.
pub fn leave_directories() -> Result<()> {
    let name = format!("tessera-javascript-{}", std::process::id());
    DirBuilder::new().mode(0o700).create(&name)?;
    let entered = std::env::set_current_dir(&name);
    // It goes on without a name.
    std::fs::remove_dir(if entered.is_ok() { format!("../{name}") } else { name })?;
    entered
}

/// Bounds what the process may use.
pub fn limit() -> Result<()> {
    let limits = [
        (Resource::As, space()? + SPACE_BYTES),
        (Resource::Core, 0),
        (Resource::Cpu, PROCESSOR_SECONDS),
        (Resource::Fsize, 0),
        (Resource::Nofile, 0),
        (Resource::Nproc, 0),
    ];
    for (resource, most) in limits {
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    Ok(())
}

/// The address space of the process now.
fn space() -> Result<u64> {
    let sizes = std::fs::read_to_string("/proc/self/statm")?;
    let pages = sizes.split(' ').next().and_then(|pages| pages.parse::<u64>().ok());
    pages.map(|pages| pages * rustix::param::page_size() as u64).ok_or_else(|| Error::other("statm has no number"))
}

/// Has the kernel refuse whatever is not [`ALLOWED`], for all threads.
#[expect(unsafe_code, reason = "no library that is used here has this call")]
pub fn filter() -> Result<()> {
    let mut program = filter_program();
    let given = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: changes an attribute of this process only; the other arguments have to be zero.
    checked(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into())?;
    let (mode, flags) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
    // SAFETY: the kernel reads the program, which lives until the call returns, and copies it.
    checked(unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const given) })
}

/// The filter for the kernel: it says of the number of a call whether it is allowed.
fn filter_program() -> Vec<libc::sock_filter> {
    let load = |offset: usize| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset as u32);
    let give = |verdict: u32| statement(libc::BPF_RET | libc::BPF_K, verdict);
    let refused = give(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32);
    let mut program = vec![
        load(std::mem::offset_of!(libc::seccomp_data, arch)),
        // Numbers of another architecture mean something else.
        jump_over_if(ARCHITECTURE, 1),
        refused,
        load(std::mem::offset_of!(libc::seccomp_data, nr)),
    ];
    for (left, call) in (0..ALLOWED.len()).rev().zip(ALLOWED) {
        // Over the comparisons that are left, and the refusal.
        program.push(jump_over_if(*call as u32, left as u8 + 1));
    }
    program.extend([refused, give(libc::SECCOMP_RET_ALLOW)]);
    program
}

fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

fn jump_over_if(equal: u32, over: u8) -> libc::sock_filter {
    libc::sock_filter { jt: over, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, equal) }
}

fn checked(returned: libc::c_long) -> Result<()> {
    if returned == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}
