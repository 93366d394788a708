//! File systems for the time of a test. They need the right to mount.

use crate::server::wait_for;
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long a file system may be busy after its last user ended.
const BUSY: Duration = Duration::from_secs(30);

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Takes a file system away, whoever still uses it.
fn take_away(at: &Path) {
    let _ = Command::new("umount").arg("-l").arg(at).status();
}

/// A small one, in memory.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None` without the right to mount one.
    pub fn mount(at: PathBuf, bytes: usize) -> Option<Self> {
        std::fs::create_dir_all(&at).unwrap();
        let size = format!("size={bytes}");
        succeeds(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&at)).then_some(Self(at))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        take_away(&self.0);
    }
}

/// One in a file, whose power can be cut: what was written and not synced is gone then, the file system's own journal
/// included. Only the thread that made it, and what that starts, can see it.
pub struct DiskWithPower {
    image: PathBuf,
    at: PathBuf,
}

/// Of a disk with power, which takes no more of the machine's than is written.
const BYTES: u64 = 2 << 30;

impl DiskWithPower {
    /// One for each node of a cluster; `None` without the right to mount them.
    pub fn mount_all(directory: &Path, count: usize) -> Option<Vec<Self>> {
        (0..count).map(|at| Self::mount(&directory.join(format!("power-{at}")), BYTES)).collect()
    }

    /// `None` without the right to mount one.
    pub fn mount(directory: &Path, bytes: u64) -> Option<Self> {
        let disk = Self { image: directory.join("image"), at: directory.join("disk") };
        // Hosts of other tests would go on using it, since each of them gets a copy of what is mounted.
        #[expect(unsafe_code, reason = "sharing one's files no more would be unsound; the mounts are another thing")]
        // SAFETY: the thread's descriptors stay as they are.
        let is_apart = unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.is_ok();
        if !is_apart || !succeeds(Command::new("mount").args(["--make-rprivate", "/"])) {
            return None;
        }
        std::fs::create_dir_all(&disk.at).unwrap();
        File::create(&disk.image).unwrap().set_len(bytes).unwrap();
        let is_made = succeeds(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&disk.image)) && disk.try_mount();
        is_made.then_some(disk)
    }

    fn try_mount(&self) -> bool {
        succeeds(Command::new("mount").args(["-o", "loop"]).arg(&self.image).arg(&self.at))
    }

    pub fn path(&self) -> &Path {
        &self.at
    }

    /// From now on nothing reaches the disk, and everything is told that it fails.
    #[expect(unsafe_code, reason = "no library knows this request")]
    pub fn cut_power(&self) {
        /// Linux: `EXT4_IOC_SHUTDOWN`, and its flag to leave the journal as it is.
        const SHUT_DOWN: libc::c_ulong = 0x8004_587d;
        const WITHOUT_JOURNAL: u32 = 2;
        let directory = File::open(&self.at).unwrap();
        // SAFETY: a plain system call with a descriptor that is open and a number that outlives it.
        let outcome = unsafe { libc::ioctl(directory.as_raw_fd(), SHUT_DOWN, &WITHOUT_JOURNAL) };
        assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
    }

    /// From now on whoever writes to it waits, until what this returns goes.
    pub fn freeze(&self) -> FrozenDisk {
        assert!(succeeds(Command::new("fsfreeze").arg("-f").arg(&self.at)), "the disk cannot be frozen");
        FrozenDisk(self.at.clone())
    }

    /// What had reached the disk is there again. Nobody may use it meanwhile.
    pub fn power_up(&self) {
        wait_for("the disk can be unmounted", BUSY, || succeeds(Command::new("umount").arg(&self.at)).then_some(()));
        assert!(self.try_mount(), "the disk cannot be mounted");
    }
}

impl Drop for DiskWithPower {
    fn drop(&mut self) {
        take_away(&self.at);
    }
}

/// A disk to which nothing can be written for now.
pub struct FrozenDisk(PathBuf);

impl Drop for FrozenDisk {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze").arg("-u").arg(&self.0).status();
    }
}

/// Makes reads of a disk slow for one process, as long as this is there.
pub struct SlowReads {
    group: PathBuf,
}

impl SlowReads {
    /// Lets a process make so many reads of the disk under a path in a second. `None` if the system cannot do that.
    pub fn begin(path: &Path, per_second: u32, process: u32) -> Option<Self> {
        let device = std::fs::metadata(path).unwrap().st_dev();
        let device = format!("{}:{}", libc::major(device), libc::minor(device));
        let name = format!("tessera-test-{process}");
        let (first, second) = (Path::new("/sys/fs/cgroup/blkio"), Path::new("/sys/fs/cgroup"));
        let (group, setting, text) = if first.exists() {
            (first.join(name), "blkio.throttle.read_iops_device", format!("{device} {per_second}"))
        } else {
            std::fs::write(second.join("cgroup.subtree_control"), "+io").ok()?;
            (second.join(name), "io.max", format!("{device} riops={per_second}"))
        };
        std::fs::create_dir(&group).ok()?;
        let slow = Self { group };
        std::fs::write(slow.group.join(setting), text).ok()?;
        std::fs::write(slow.group.join("cgroup.procs"), process.to_string()).ok()?;
        Some(slow)
    }
}

impl Drop for SlowReads {
    fn drop(&mut self) {
        let all = self.group.parent().expect("a group is in another one").join("cgroup.procs");
        let processes = std::fs::read_to_string(self.group.join("cgroup.procs")).unwrap_or_default();
        processes.lines().for_each(|process| _ = std::fs::write(&all, process));
        let _ = std::fs::remove_dir(&self.group);
    }
}
