//! Carries out a plan on a thread of its own, while somebody watches.

use crate::machine::Sample;
use crate::plan::Plan;
use crate::run::{Measured, Progress};
use crate::{cpu, disk, run};
use anyhow::{Context, bail};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// How often the watcher is told.
const GLANCE: Duration = Duration::from_millis(500);

/// What is to be done besides the plan itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Execution<'a> {
    /// Write all records instead.
    pub is_load: bool,
    /// Core on which to generate load.
    pub core: Option<usize>,
    /// Processes whose CPU time and disk I/O count.
    pub server_pids: &'a [u32],
}

/// Carries out a plan. Returns what was measured, and the CPU time that the server took meanwhile if that can be told.
/// `watch` gets the number of operations done twice a second; `stop` ends the run early.
///
/// # Errors
/// If the server cannot be reached, or ends a connection.
pub fn execute(
    plan: &Plan,
    execution: Execution<'_>,
    stop: &AtomicBool,
    mut watch: impl FnMut(u64),
) -> anyhow::Result<(Measured, Option<Duration>)> {
    let Execution { is_load, core, server_pids } = execution;
    let progress = Arc::new(Progress::default());
    let (measuring, begun) = mpsc::channel();
    let (finished, outcome) = mpsc::channel();
    let thread = {
        let (plan, progress) = (plan.clone(), progress.clone());
        std::thread::spawn(move || {
            let pinned = core.map_or(Ok(()), cpu::pin_to).context("cannot run on that core");
            let measured = pinned.and_then(|()| {
                if is_load {
                    run::load(&plan, &progress)
                } else {
                    run::run(&plan, &progress, || _ = measuring.send(()))
                }
            });
            let _ = finished.send(measured);
        })
    };
    let server_cpu = || -> Option<Duration> { server_pids.iter().map(|pid| cpu::of_process(*pid)).sum() };
    let before = if is_load || begun.recv().is_ok() { server_cpu() } else { None };
    let machine_before = Sample::take();
    let began = Instant::now();
    let disk = || disk::of_processes(server_pids).map(|bytes| (began.elapsed(), bytes));
    let mut disk_counts = Vec::from_iter(disk());
    let measured = loop {
        match outcome.recv_timeout(GLANCE) {
            Ok(measured) => break measured,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                disk_counts.extend(disk());
                watch(progress.done.load(Ordering::Relaxed));
                progress.stop.fetch_or(stop.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => bail!("the load generator ended early"),
        }
    };
    let (after, machine_after) = (server_cpu(), Sample::take());
    let _ = thread.join();
    let server_cpu = after.zip(before).map(|(after, before)| after.saturating_sub(before));
    let server_cpu = server_cpu.filter(|_| !server_pids.is_empty());
    disk_counts.extend(disk());
    let mut measured = measured?;
    let by_second = disk::by_second(&disk_counts, measured.seconds.len());
    for (second, bytes) in measured.seconds.iter_mut().zip(by_second) {
        (second.server_read_bytes, second.server_written_bytes) = (Some(bytes.read), Some(bytes.written));
    }
    let machine = machine_after.zip(machine_before);
    measured.machine = machine.and_then(|(after, before)| after.since(&before, server_cpu));
    Ok((measured, server_cpu))
}
