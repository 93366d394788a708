//! A run: connections, load, timing.
//!
//! **Closed loop:** every connection has one request (or one pipeline of them) under way and sends the next when it is
//! answered. **Open loop:** operations are due at a fixed rate, whether the server keeps up or not, and a latency counts
//! from when the operation was *due*; an operation that had to wait for a free connection has waited for the server.

use crate::connection::{Connection, InFlight, Link, could_not_read, could_not_write, ended};
use crate::cpu;
use crate::driver::Encoder;
use crate::machine::MachineLoad;
use crate::measure::{self, Latencies, Second};
use crate::pace::Pace;
use crate::plan::Plan;
use crate::workload::{KeyChooser, KeyDistribution, Mix, Operation, RecordShape, Values};
use anyhow::{Context, bail};
use mio::{Events, Interest, Poll, Token};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Progress that others may look at.
#[derive(Default)]
pub struct Progress {
    pub done: AtomicU64,
    pub stop: AtomicBool,
}

/// What one thread measured.
pub struct Measured {
    pub reads: Latencies,
    pub writes: Latencies,
    pub seconds: Vec<Second>,
    pub elapsed: Duration,
    /// CPU time of this thread in the measured part.
    pub cpu: Duration,
    pub last_error: Option<String>,
    /// What else the machine did meanwhile, if that can be told.
    pub machine: Option<MachineLoad>,
}

impl Measured {
    /// The latencies as a log of HDR histograms.
    ///
    /// # Errors
    /// If they cannot be encoded.
    pub fn hdr_log(&self) -> anyhow::Result<Vec<u8>> {
        measure::hdr_log(&[("READ", &self.reads), ("WRITE", &self.writes)], self.elapsed)
    }
}

/// Runs a plan on the calling thread.
///
/// # Errors
/// If the server cannot be reached or ends a connection.
pub fn run(plan: &Plan, progress: &Arc<Progress>, on_measure: impl FnOnce()) -> anyhow::Result<Measured> {
    let mut loop_ = Loop::new(plan, progress.clone())?;
    loop_.run(on_measure)
}

/// Writes every record once, in pipelines.
///
/// # Errors
/// As [`run`].
pub fn load(plan: &Plan, progress: &Arc<Progress>) -> anyhow::Result<Measured> {
    let plan = Plan {
        mix: Mix::parse("write")?,
        distribution: KeyDistribution::Sequential,
        pipeline: plan.pipeline.max(16),
        rate: None,
        warm_up: Duration::ZERO,
        duration: Duration::MAX,
        operations: Some(plan.records.div_ceil(plan.batch as u64)),
        shape: RecordShape { writes_all: true, ..plan.shape },
        ..plan.clone()
    };
    run(&plan, progress, || {})
}

/// Connections' tokens are below.
const PACE: Token = Token(usize::MAX);

struct Loop<'a> {
    plan: &'a Plan,
    progress: Arc<Progress>,
    poll: Poll,
    connections: Vec<Connection>,
    links_each: usize,
    encoder: Box<dyn Encoder>,
    values: Values,
    chooser: KeyChooser,
    random: SmallRng,
    /// Records that exist, counting inserts of this run.
    records: u64,
    reads: Latencies,
    writes: Latencies,
    second_reads: Latencies,
    second_writes: Latencies,
    seconds: Vec<Second>,
    done: u64,
    started: u64,
    measuring: bool,
    /// Open loop: what is due and has no connection yet, and connections without work.
    due: VecDeque<Instant>,
    idle: Vec<usize>,
}

impl<'a> Loop<'a> {
    fn new(plan: &'a Plan, progress: Arc<Progress>) -> anyhow::Result<Self> {
        let poll = Poll::new()?;
        let mut connections = Vec::with_capacity(plan.connections);
        let encoder = plan.route.encoder(plan.shape, plan.batch);
        let links_each = plan.route.links(0).len();
        for number in 0..plan.connections {
            let mut links = Vec::with_capacity(links_each);
            for (at, address) in plan.route.links(number).into_iter().enumerate() {
                let mut link = Link::connect(plan, address, encoder.as_ref())?;
                let token = Token(number * links_each + at);
                poll.registry().register(link.socket.stream(), token, Interest::READABLE | Interest::WRITABLE)?;
                links.push(link);
            }
            connections.push(Connection { links, in_flight: 0 });
        }
        Ok(Self {
            poll,
            encoder,
            links_each,
            values: Values::new(plan.seed),
            chooser: KeyChooser::new(plan.distribution, plan.records, plan.mix.inserts(plan.operations)),
            random: SmallRng::seed_from_u64(plan.seed),
            records: plan.records,
            reads: Latencies::new(plan.limit),
            writes: Latencies::new(plan.limit),
            second_reads: Latencies::new(plan.limit),
            second_writes: Latencies::new(plan.limit),
            seconds: Vec::new(),
            done: 0,
            started: 0,
            measuring: false,
            due: VecDeque::new(),
            idle: (0..plan.connections).collect(),
            connections,
            progress,
            plan,
        })
    }

    fn run(&mut self, on_measure: impl FnOnce()) -> anyhow::Result<Measured> {
        let began = Instant::now();
        let measure_from = began + self.plan.warm_up;
        let mut on_measure = Some(on_measure);
        let mut cpu_before = cpu::of_this_thread();
        let (mut measured_from, mut second_from, mut done_in_second) = (began, began, 0);
        let mut pace = self.plan.rate.map(|rate| Pace::new(rate, &self.poll, PACE)).transpose()?;
        let mut events = Events::with_capacity(1024);
        loop {
            let now = Instant::now();
            if !self.measuring && now >= measure_from {
                self.measuring = true;
                for latencies in [&mut self.reads, &mut self.writes, &mut self.second_reads, &mut self.second_writes] {
                    latencies.clear();
                }
                (measured_from, second_from, self.done, done_in_second) = (now, now, 0, 0);
                self.started = self.connections.iter().map(|connection| connection.in_flight as u64).sum();
                cpu_before = cpu::of_this_thread();
                on_measure.take().into_iter().for_each(|tell| tell());
            }
            let elapsed = now - measured_from;
            let enough = self.plan.operations.is_some_and(|limit| self.done >= limit) || elapsed >= self.plan.duration;
            if self.measuring && now - second_from >= Duration::from_secs(1) {
                self.end_second(&mut done_in_second);
                second_from += Duration::from_secs(1);
            }
            if (self.measuring && enough) || self.progress.stop.load(Ordering::Relaxed) {
                break;
            }
            match &mut pace {
                None => self.start_all(now)?,
                Some(pace) => {
                    // All that has become due since the last look.
                    self.due.extend(std::iter::from_fn(|| pace.take_due(now)));
                    self.start_due()?;
                    pace.arm();
                }
            }
            match self.poll.poll(&mut events, Some(Duration::from_millis(50))) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            for event in events.iter().filter(|event| event.token() != PACE) {
                let (number, link) = (event.token().0 / self.links_each, event.token().0 % self.links_each);
                if event.is_writable() {
                    let written = self.connections[number].links[link].write();
                    written.map_err(|error| could_not_write(self.plan, error))?;
                }
                if event.is_readable() {
                    self.read(number, link, event.is_read_closed())?;
                }
            }
            self.progress.done.store(self.done, Ordering::Relaxed);
        }
        let elapsed = measured_from.elapsed();
        let mut links = self.connections.iter_mut().flat_map(|connection| &mut connection.links);
        let last_error = links.find_map(|link| link.counter.errors().last.take());
        let limit = self.plan.limit;
        Ok(Measured {
            reads: std::mem::replace(&mut self.reads, Latencies::new(limit)),
            writes: std::mem::replace(&mut self.writes, Latencies::new(limit)),
            seconds: std::mem::take(&mut self.seconds),
            elapsed,
            cpu: cpu::of_this_thread().saturating_sub(cpu_before),
            last_error,
            machine: None,
        })
    }

    fn end_second(&mut self, done_in_second: &mut u64) {
        let (reads, writes) = (self.second_reads.summary(), self.second_writes.summary());
        self.seconds.push(Second {
            second: self.seconds.len() as u64 + 1,
            operations: self.done - *done_in_second,
            read_p99_ms: reads.p99_ms,
            write_p99_ms: writes.p99_ms,
            server_read_bytes: None,
            server_written_bytes: None,
        });
        *done_in_second = self.done;
        self.second_reads.clear();
        self.second_writes.clear();
    }

    /// Closed loop: gives every idle connection its next pipeline.
    fn start_all(&mut self, now: Instant) -> anyhow::Result<()> {
        loop {
            // What is done to warm up does not count.
            let limit = self.plan.operations.filter(|_| self.measuring);
            let count =
                u64::min(self.plan.pipeline as u64, limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.started)));
            if count == 0 {
                break;
            }
            let Some(number) = self.idle.pop() else { break };
            for _ in 0..count {
                self.begin(number, now);
            }
            self.write(number)?;
        }
        Ok(())
    }

    /// Open loop: gives what is due to idle connections.
    fn start_due(&mut self) -> anyhow::Result<()> {
        while !self.due.is_empty() {
            let Some(number) = self.idle.pop() else { break };
            for _ in 0..self.plan.pipeline {
                let Some(due) = self.due.pop_front() else { break };
                self.begin(number, due);
            }
            self.write(number)?;
        }
        Ok(())
    }

    fn write(&mut self, number: usize) -> anyhow::Result<()> {
        self.connections[number].write().map_err(|error| could_not_write(self.plan, error))
    }

    fn begin(&mut self, number: usize, due: Instant) {
        let operation = self.plan.mix.next(&mut self.random);
        let record = match operation {
            Operation::Insert => {
                self.records += 1;
                self.records - 1
            }
            _ => self.chooser.next(self.records, &mut self.random) / self.plan.batch as u64 * self.plan.batch as u64,
        };
        let connection = &mut self.connections[number];
        let link = &mut connection.links[self.encoder.link_of(record)];
        let (replies, first) = self.encoder.encode(operation, record, &mut self.values, &mut link.output);
        let numbers = first.map(|first| first..first.saturating_add(replies as i32));
        link.in_flight.push_back(InFlight { operation, due, replies, numbers });
        connection.in_flight += 1;
        self.started += 1;
    }

    /// Reads what has arrived; of a connection that the server has closed, to the end, which is not told a second time.
    fn read(&mut self, number: usize, link: usize, is_closed: bool) -> anyhow::Result<()> {
        let mut buffer = [0; 64 << 10];
        loop {
            let connection = &mut self.connections[number];
            let Link { socket, counter, in_flight, .. } = &mut connection.links[link];
            let length = match socket.read(&mut buffer) {
                Ok(0) => match counter.errors().last.take() {
                    // What a server says that expects TLS is no text.
                    Some(error) if !error.starts_with(char::is_control) => {
                        bail!("the server closed a connection, and said: {error}")
                    }
                    _ => bail!(ended(self.plan)),
                },
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(could_not_read(self.plan, error)),
            };
            let errors = counter.errors().count;
            let replies = counter.take(&buffer[..length]);
            let mut done: Vec<(Operation, Instant)> = Vec::new();
            for at in 0..replies.count {
                let asked = replies.numbers.map(|numbers| numbers[at]);
                let is_its = |under_way: &InFlight| asked.is_none_or(|asked| under_way.is_of(asked));
                let place = in_flight.iter().position(is_its).context("a reply to no request")?;
                let under_way = &mut in_flight[place];
                if under_way.is_read(asked) {
                    let latencies = if under_way.operation.only_reads() { &mut self.reads } else { &mut self.writes };
                    latencies.looked_up(self.plan.batch as u64, replies.absent[at].into());
                }
                under_way.replies -= 1;
                if under_way.replies == 0 {
                    done.extend(in_flight.remove(place).map(|done| (done.operation, done.due)));
                }
            }
            let failed = counter.errors().count > errors;
            let is_emptied = !is_closed && socket.is_emptied_by_short_reads() && length < buffer.len();
            connection.in_flight -= done.len();
            let is_idle = connection.in_flight == 0 && !done.is_empty();
            let now = Instant::now();
            done.into_iter().for_each(|(operation, due)| self.finish(operation, now - due, failed));
            if is_idle {
                self.idle.push(number);
            }
            if is_emptied {
                return Ok(());
            }
        }
    }

    fn finish(&mut self, operation: Operation, latency: Duration, failed: bool) {
        self.done += 1;
        let (total, second) = match operation {
            operation if operation.only_reads() => (&mut self.reads, &mut self.second_reads),
            _ => (&mut self.writes, &mut self.second_writes),
        };
        total.record(latency, 1);
        second.record(latency, 1);
        total.errors += u64::from(failed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Route;
    use std::io::{BufRead, BufReader, Write};
    use std::net::SocketAddr;

    fn plan(address: SocketAddr) -> Plan {
        Plan {
            route: Route::Any(vec![address]),
            tls: None,
            greeting: Vec::new(),
            connections: 2,
            pipeline: 4,
            batch: 1,
            mix: Mix::parse("read").unwrap(),
            distribution: KeyDistribution::Uniform,
            records: 10,
            shape: RecordShape::whole(1, 10),
            rate: None,
            warm_up: Duration::from_millis(200),
            duration: Duration::from_secs(20),
            operations: Some(100),
            limit: Duration::from_secs(1),
            seed: 1,
        }
    }

    /// A server that does this with each connection, on a thread of its own. Returns where it is.
    fn serve_each(act: fn(std::net::TcpStream)) -> SocketAddr {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        std::thread::spawn(move || {
            server.incoming().for_each(|stream| _ = std::thread::spawn(move || act(stream.unwrap())));
        });
        address
    }

    /// What is done to warm up was once counted, and left a run waiting for operations that nobody began.
    #[test]
    fn a_run_of_so_many_operations_ends_after_them() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        std::thread::spawn(move || crate::null_server::run(address.port(), 10));
        let began = Instant::now();
        while std::net::TcpStream::connect(address).is_err() {
            assert!(began.elapsed() < Duration::from_secs(20), "the server answers");
            std::thread::yield_now();
        }
        let measured = run(&plan(address), &Arc::default(), || {}).unwrap();
        assert!(measured.elapsed < Duration::from_secs(20), "it ended by the operations");
        let reads = measured.reads.summary();
        assert!((100..108).contains(&reads.operations));
        assert_eq!((reads.records_read, reads.records_found), (reads.operations, reads.operations));
    }

    /// Reads of a table that was never loaded once looked like any others.
    #[test]
    fn reads_of_records_that_are_not_there_are_counted() {
        let address = serve_each(|mut stream| {
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            for _ in lines.map_while(Result::ok).filter(|line| line == "GET") {
                let _ = stream.write_all(b"$-1\r\n");
            }
        });
        let reads = run(&plan(address), &Arc::default(), || {}).unwrap().reads.summary();
        assert!(reads.operations >= 100, "{reads:?}");
        assert_eq!((reads.records_read, reads.records_found), (reads.operations, 0));
    }

    /// A server that expects TLS sends an alert and closes the connection. Its end, which was told together with the alert, was never read.
    #[test]
    fn a_connection_that_ends_behind_what_was_sent_is_an_error() {
        let address = serve_each(|mut stream| {
            let _ = stream.read(&mut [0; 1 << 16]);
            stream.write_all(b"\x15\x03\x03\0\x02\x02\x46").unwrap();
            let _ = stream.shutdown(std::net::Shutdown::Write);
            // Without a reset, which would be told as an error of its own.
            std::mem::forget(stream);
        });
        let progress = Arc::new(Progress::default());
        let (stopping, stopped) = (progress.clone(), std::sync::mpsc::channel());
        std::thread::spawn(move || {
            if stopped.1.recv_timeout(Duration::from_secs(20)).is_err() {
                stopping.stop.store(true, Ordering::Relaxed);
            }
        });
        let outcome = load(&plan(address), &progress);
        let _ = stopped.0.send(());
        let error = outcome.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("closed a connection") && error.contains("--tls"), "{error}");
    }

    /// If it has not read all that was sent to it, such a server resets the connection, which was told as an error of reading.
    #[test]
    fn a_connection_that_is_reset_is_told_as_one_that_the_server_closed() {
        let address = serve_each(|mut stream| {
            let _ = stream.read(&mut [0; 1]);
        });
        let error = load(&plan(address), &Arc::default()).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("closed a connection") && error.contains("--tls"), "{error}");
    }
}
