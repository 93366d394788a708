//! Making requests, on threads of their own, so that nobody waits for one longer than wanted.

use crate::reach::{Reach, is_local};
use crate::request::{Answer, Failure, Request};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};
use ureq::config::Config;
use ureq::http::Uri;
use ureq::tls::TlsConfig;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::time::Duration as Wait;
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, Error, Timeout};

/// The largest body of an answer, in bytes.
pub const ANSWER_BYTES: u64 = 16 << 20;
/// The longest time that a request may take, whatever is asked for.
pub const LONGEST: Duration = Duration::from_secs(600);
/// How long a server may take to take a connection. Meanwhile a request cannot be given up.
const CONNECT: Duration = Duration::from_secs(20);
/// How often is looked whether anybody still waits.
const LOOK: Duration = Duration::from_millis(20);
/// Before a request is made again; each time the double of the time before.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Whether requests may go to an address.
type Allows = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// Makes requests for clients of a node.
pub struct Fetcher {
    /// None if there are to be no requests at all.
    allows: Option<Allows>,
    most: usize,
    under_way: Arc<AtomicUsize>,
}

/// A request that counts as under way until it is dropped.
struct UnderWay(Arc<AtomicUsize>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Fetcher {
    /// Makes at most so many requests at one time. `is_node` says which addresses are those of nodes, which are not public whatever they
    /// look like.
    pub fn new(reach: Reach, most: usize, is_node: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        let allows: Option<Allows> = match reach {
            Reach::Nowhere => None,
            Reach::Everywhere => Some(Arc::new(|_| true)),
            Reach::Public => {
                Some(Arc::new(move |address| reach.allows(address) && !is_local(address) && !is_node(address)))
            }
        };
        Self { allows, most, under_way: Arc::default() }
    }

    /// Makes a request as often as it says. Blocks while `goes_on` says that the answer is wanted.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn fetch(&self, request: &Request, goes_on: impl Fn() -> bool) -> Result<Answer, Failure> {
        // Not even a name is looked up.
        let Some(allows) = &self.allows else { return Err(Failure::Forbidden) };
        if request.timeout.is_zero() {
            return Err(Failure::TimedOut(request.timeout));
        }
        let until = Instant::now() + request.timeout.min(LONGEST);
        let (mut outcome, mut pause) = (Err(Failure::NoAttempts), FIRST_PAUSE);
        for attempt in 0..request.attempts {
            // What came of the last attempt says more than that there is no time for another one.
            if attempt > 0 && Instant::now() + pause >= until {
                break;
            }
            if attempt > 0 {
                wait(pause, &goes_on);
                pause = (2 * pause).min(LONGEST_PAUSE);
            }
            if !goes_on() {
                return Err(Failure::Interrupted);
            }
            outcome = self.fetch_once(allows, request, until, &goes_on);
            match &outcome {
                Ok(answer) if answer.may_pass() => {}
                Err(failure) if failure.may_pass() => {}
                _ => break,
            }
        }
        outcome
    }

    /// Makes a request on a thread of its own. It is given up if nobody wants the answer any more, which takes a while where a name is looked
    /// up or a connection made: the request counts as long.
    fn fetch_once(
        &self,
        allows: &Allows,
        request: &Request,
        until: Instant,
        goes_on: &impl Fn() -> bool,
    ) -> Result<Answer, Failure> {
        let timed_out = || Failure::TimedOut(request.timeout.min(LONGEST));
        if self.under_way.fetch_add(1, Ordering::Relaxed) >= self.most {
            self.under_way.fetch_sub(1, Ordering::Relaxed);
            return Err(Failure::TooMany);
        }
        let under_way = UnderWay(self.under_way.clone());
        let (sender, receiver) = sync_channel(1);
        let agent = agent(allows.clone(), request, until.saturating_duration_since(Instant::now()));
        let (given_up, wanted) = (agent.clone(), request.clone());
        let thread = std::thread::Builder::new().name("http-fetch".into());
        let run = move || {
            let outcome = perform(&agent, &wanted);
            // Before it is told: whoever hears of it may begin the next one.
            drop(under_way);
            let _ = sender.send(outcome);
        };
        thread.spawn(run).map_err(|error| Failure::Request(error.to_string()))?;
        let why = loop {
            match receiver.recv_timeout(LOOK) {
                Ok(outcome) => return outcome.map_err(|failure| failure.unwrap_or_else(timed_out)),
                Err(RecvTimeoutError::Disconnected) => return Err(Failure::Broken),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= until => break timed_out(),
                Err(RecvTimeoutError::Timeout) if goes_on() => {}
                Err(RecvTimeoutError::Timeout) => break Failure::Interrupted,
            }
        };
        given_up.shutdown();
        Err(why)
    }
}

/// Waits as long as somebody wants an answer.
fn wait(pause: Duration, goes_on: &impl Fn() -> bool) {
    let until = Instant::now() + pause;
    while goes_on() {
        match until.saturating_duration_since(Instant::now()) {
            left if left.is_zero() => return,
            left => std::thread::sleep(left.min(LOOK)),
        }
    }
}

/// Finds the addresses that requests may go to, also for redirects.
struct Guarded {
    resolver: DefaultResolver,
    allows: Allows,
}

impl std::fmt::Debug for Guarded {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Guarded").finish_non_exhaustive()
    }
}

/// Says through ureq that no address of a host is allowed.
#[derive(Debug, thiserror::Error)]
#[error("no address of the host is allowed")]
struct NotAllowed;

impl Resolver for Guarded {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        // With a limit the name would be looked up on another thread, which goes on by itself and is counted by nobody.
        let found = self.resolver.resolve(uri, config, NextTimeout { after: Wait::NotHappening, ..timeout })?;
        let mut allowed = self.empty();
        found.iter().filter(|address| (self.allows)(address.ip())).for_each(|address| allowed.push(*address));
        match found.first() {
            Some(first) if allowed.is_empty() => {
                // Not for the client: whom a name stands for within the node's network is none of its business.
                tracing::debug!(address = %first.ip(), "a request of `r.http` was not allowed");
                Err(Error::Io(io::Error::new(io::ErrorKind::PermissionDenied, NotAllowed)))
            }
            _ => Ok(allowed),
        }
    }
}

/// Makes one request, within the time that is left.
fn agent(allows: Allows, request: &Request, left: Duration) -> Agent {
    let tls = TlsConfig::builder().disable_verification(!request.verify).build();
    let config = Config::builder()
        .timeout_global(Some(left))
        .timeout_connect(Some(CONNECT))
        .max_redirects(request.redirects)
        .http_status_as_error(false)
        .allow_non_standard_methods(true)
        // What stands in the environment of the node is not for its clients.
        .proxy(None)
        .tls_config(tls)
        .user_agent(concat!("tessera/", env!("CARGO_PKG_VERSION")))
        .build();
    let resolver = Guarded { resolver: DefaultResolver::default(), allows };
    Agent::with_parts(config, DefaultConnector::default(), resolver)
}

/// Makes a request once. `None` says that it took too long.
fn perform(agent: &Agent, request: &Request) -> Result<Answer, Option<Failure>> {
    let mut builder = ureq::http::Request::builder().method(request.method.as_str()).uri(url(&request.url)?);
    for (name, value) in &request.headers {
        builder = builder.header(name, value);
    }
    let refuse = |error: ureq::http::Error| Some(Failure::Request(error.to_string()));
    let answer = match &request.body {
        Some(body) => agent.run(builder.body(&body[..]).map_err(refuse)?),
        None => agent.run(builder.body(()).map_err(refuse)?),
    };
    let mut answer = answer.map_err(failure)?;
    let headers = answer.headers().iter();
    let headers =
        headers.map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()));
    let headers = headers.collect();
    let status = answer.status().as_u16();
    let body = answer.body_mut().with_config().limit(ANSWER_BYTES).read_to_vec().map_err(failure)?;
    Ok(Answer { status, headers, body })
}

/// The URL as ureq takes it: without a scheme it is one of HTTP.
fn url(text: &str) -> Result<String, Failure> {
    match text.split_once("://") {
        Some((scheme, rest)) if !rest.is_empty() => match scheme.to_ascii_lowercase().as_str() {
            "http" | "https" => Ok(text.into()),
            _ => Err(Failure::Protocol),
        },
        Some(_) => Err(Failure::Url),
        // `host:` says that there is a port, and has none.
        None if text.is_empty() || text.ends_with(':') => Err(Failure::Url),
        None => Ok(format!("http://{text}")),
    }
}

fn failure(error: Error) -> Option<Failure> {
    Some(match error {
        Error::Timeout(Timeout::Connect) => Failure::NotConnected,
        Error::Timeout(_) => return None,
        Error::HostNotFound => Failure::NoHost,
        Error::ConnectionFailed => Failure::NotConnected,
        Error::TooManyRedirects | Error::RedirectFailed => Failure::Redirects,
        Error::BadUri(_) => Failure::Url,
        Error::BodyExceedsLimit(_) => Failure::TooLong(ANSWER_BYTES),
        Error::Http(error) => Failure::Request(error.to_string()),
        Error::Tls(_) | Error::Rustls(_) => Failure::Certificate,
        Error::Io(error) => return of_io(&error),
        _ => Failure::Broken,
    })
}

fn of_io(error: &io::Error) -> Option<Failure> {
    if error.get_ref().is_some_and(|inner| inner.is::<NotAllowed>()) {
        return Some(Failure::Forbidden);
    }
    let text = error.to_string();
    Some(match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => return None,
        io::ErrorKind::ConnectionRefused
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::AddrNotAvailable => Failure::NotConnected,
        io::ErrorKind::InvalidData if text.contains("certificate") => Failure::Certificate,
        io::ErrorKind::InvalidData => Failure::Tls,
        _ if text.contains("lookup address") => Failure::NoHost,
        _ => Failure::Broken,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Mutex;

    /// A server that answers each request with what `answer` makes of its first line, and keeps what it was sent.
    struct Server {
        port: u16,
        heard: Arc<Mutex<Vec<String>>>,
    }

    impl Server {
        fn start(answer: impl Fn(usize, &str) -> Option<String> + Send + 'static) -> Self {
            let listener = TcpListener::bind("0.0.0.0:0").unwrap();
            let (port, heard) = (listener.local_addr().unwrap().port(), Arc::<Mutex<Vec<String>>>::default());
            let all = heard.clone();
            std::thread::spawn(move || {
                let mut kept: Vec<TcpStream> = Vec::new();
                for (number, stream) in listener.incoming().enumerate() {
                    let mut stream = stream.unwrap();
                    let request = read_request(&mut stream);
                    let line = request.lines().next().unwrap_or_default().to_string();
                    all.lock().unwrap().push(request);
                    match answer(number, &line) {
                        Some(text) => _ = stream.write_all(text.as_bytes()),
                        // It never answers.
                        None => kept.push(stream),
                    }
                }
            });
            Self { port, heard }
        }

        fn heard(&self) -> Vec<String> {
            self.heard.lock().unwrap().clone()
        }
    }

    fn read_request(stream: &mut TcpStream) -> String {
        let mut reader = BufReader::new(stream);
        let (mut text, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap() == 0 || line == "\r\n" {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            text += &line;
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        text + &String::from_utf8(body).unwrap()
    }

    fn ok(body: &str) -> Option<String> {
        Some(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nX-One: 1\r\nConnection: close\r\n\r\n{body}",
            body.len()
        ))
    }

    fn request(url: String) -> Request {
        Request {
            method: "GET".into(),
            url,
            headers: Vec::new(),
            body: None,
            timeout: Duration::from_secs(20),
            attempts: 3,
            redirects: 1,
            verify: true,
        }
    }

    fn everywhere() -> Fetcher {
        Fetcher::new(Reach::Everywhere, 4, |_| false)
    }

    #[test]
    fn requests_are_sent_as_they_are_asked_for() {
        let server = Server::start(|_, _| ok("hello"));
        let fetcher = everywhere();
        let url = format!("http://127.0.0.1:{}/path?a=1", server.port);
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] {
            let body = (!["GET", "HEAD"].contains(&method)).then(|| b"body".to_vec());
            let headers = vec![("X-Two".to_string(), "two".to_string())];
            let asked = Request { method: method.into(), headers, body: body.clone(), ..request(url.clone()) };
            let answer = fetcher.fetch(&asked, || true).unwrap();
            let expected: &[u8] = if method == "HEAD" { b"" } else { b"hello" };
            assert_eq!((answer.status, &answer.body[..]), (200, expected), "{method}");
            assert!(answer.headers.contains(&("x-one".into(), "1".into())), "{answer:?}");
            let heard = server.heard().pop().unwrap();
            assert!(heard.starts_with(&format!("{method} /path?a=1 HTTP/1.1\r\n")), "{heard}");
            assert!(heard.to_ascii_lowercase().contains("x-two: two"), "{heard}");
            assert_eq!(heard.ends_with("body"), body.is_some(), "{heard}");
        }
        let without_scheme = request(format!("127.0.0.1:{}/", server.port));
        assert_eq!(fetcher.fetch(&without_scheme, || true).unwrap().body, b"hello");
    }

    #[test]
    fn what_may_pass_is_tried_again_and_nothing_else() {
        let busy = || Some("HTTP/1.1 503 Busy\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbusy".to_string());
        let missing = || Some("HTTP/1.1 404 None\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_string());
        let server = Server::start(move |number, line| match line {
            _ if line.contains("/missing") => missing(),
            _ if number < 2 => busy(),
            _ => ok("there"),
        });
        let (fetcher, url) = (everywhere(), format!("http://127.0.0.1:{}", server.port));
        assert_eq!(fetcher.fetch(&request(format!("{url}/")), || true).unwrap().body, b"there");
        assert_eq!(server.heard().len(), 3);
        assert_eq!(fetcher.fetch(&request(format!("{url}/missing")), || true).unwrap().status, 404);
        assert_eq!(server.heard().len(), 4);
        let none = Request { attempts: 0, ..request(format!("{url}/")) };
        assert_eq!(fetcher.fetch(&none, || true), Err(Failure::NoAttempts));
        let refused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(fetcher.fetch(&request(format!("http://{refused}/")), || true), Err(Failure::NotConnected));
        for (url, expected) in [
            ("ftp://127.0.0.1/", Failure::Protocol),
            ("file:///etc/passwd", Failure::Protocol),
            ("nonsense:", Failure::Url),
            ("", Failure::Url),
            ("http://", Failure::Url),
        ] {
            assert_eq!(fetcher.fetch(&request(url.into()), || true), Err(expected), "{url}");
        }
    }

    #[test]
    fn time_size_and_number_are_bounded() {
        let server = Server::start(|_, line| match line {
            _ if line.contains("/long") => {
                let length = ANSWER_BYTES + 1;
                let body = "x".repeat(usize::try_from(length).unwrap());
                Some(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"))
            }
            _ => None,
        });
        let (fetcher, url) =
            (Fetcher::new(Reach::Everywhere, 1, |_| false), format!("http://127.0.0.1:{}", server.port));
        assert_eq!(fetcher.fetch(&request(format!("{url}/long")), || true), Err(Failure::TooLong(ANSWER_BYTES)));
        let short = Duration::from_millis(200);
        let silent = Request { timeout: short, ..request(format!("{url}/silent")) };
        assert_eq!(fetcher.fetch(&silent, || true), Err(Failure::TimedOut(short)));
        let at_once = Request { timeout: Duration::ZERO, ..silent.clone() };
        assert_eq!(fetcher.fetch(&at_once, || true), Err(Failure::TimedOut(Duration::ZERO)));
        let fetcher = Fetcher::new(Reach::Everywhere, 1, |_| false);
        std::thread::scope(|scope| {
            let waits = Cell::new(true);
            let goes_on = || {
                // As soon as it is under way, another one is one too many.
                if waits.take() {
                    return true;
                }
                assert_eq!(scope.spawn(|| fetcher.fetch(&silent, || true)).join().unwrap(), Err(Failure::TooMany));
                false
            };
            // Whoever does not want the answer any more does not wait for it, and it keeps nobody from another one.
            assert_eq!(fetcher.fetch(&request(format!("{url}/silent")), goes_on), Err(Failure::Interrupted));
        });
        let began = Instant::now();
        while fetcher.fetch(&silent, || true) == Err(Failure::TooMany) {
            assert!(began.elapsed() < Duration::from_secs(10), "the request counts although nobody wants it");
        }
    }

    /// They were made one after the other as fast as they failed, and nobody could stop that.
    #[test]
    fn attempts_are_made_with_pauses_and_end_when_nobody_wants_them() {
        let refused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let endless = Request { attempts: u64::MAX, ..request(format!("http://{refused}/")) };
        let began = Instant::now();
        let outcome = everywhere().fetch(&endless, || began.elapsed() < Duration::from_millis(300));
        assert_eq!(outcome, Err(Failure::Interrupted));
        assert!(began.elapsed() < Duration::from_secs(10));
        let server = Server::start(|_, _| {
            Some("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_string())
        });
        let url = format!("http://127.0.0.1:{}/", server.port);
        let short = Request { attempts: u64::MAX, timeout: Duration::from_millis(500), ..request(url) };
        assert_eq!(everywhere().fetch(&short, || true).unwrap().status, 503);
        assert!((2..5).contains(&server.heard().len()), "{}", server.heard().len());
        assert_eq!(everywhere().fetch(&short, || false), Err(Failure::Interrupted));
    }

    /// Each was looked up on another thread, which went on although the request did not count any more.
    #[test]
    fn names_are_looked_up_on_the_thread_that_counts() {
        let guarded = Guarded { resolver: DefaultResolver::default(), allows: Arc::new(|_| true) };
        let timeout =
            NextTimeout { after: Wait::Exact(Duration::ZERO), reason: Timeout::Global, ..NextTimeout::default() };
        let found = guarded.resolve(&"http://localhost:80/".parse().unwrap(), &Config::default(), timeout);
        // On another thread it would have come too late.
        assert!(!found.unwrap().is_empty());
    }

    #[test]
    fn addresses_that_are_not_allowed_are_not_connected_to_also_by_redirects() {
        let private = Server::start(|_, _| ok("secret"));
        let port = private.port;
        let public = Server::start(move |_, line| match line {
            _ if line.contains("/away") => {
                let to = format!("http://127.0.0.2:{port}/");
                Some(format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
            }
            _ => ok("public"),
        });
        let allows = |address: IpAddr| address.to_string() == "127.0.0.1";
        let fetcher = Fetcher { allows: Some(Arc::new(allows)), ..everywhere() };
        let url = format!("http://127.0.0.1:{}", public.port);
        assert_eq!(fetcher.fetch(&request(format!("{url}/")), || true).unwrap().body, b"public");
        let forbidden = Err(Failure::Forbidden);
        assert_eq!(fetcher.fetch(&request(format!("{url}/away")), || true), forbidden);
        assert_eq!(fetcher.fetch(&request(format!("http://127.0.0.2:{port}/")), || true), forbidden);
        assert!(private.heard().is_empty());
        // Without redirects the answer is what the server says, and more than are wanted are too many.
        let none = Request { redirects: 0, ..request(format!("{url}/away")) };
        assert_eq!(fetcher.fetch(&none, || true).unwrap().status, 302);
        let chain = Server::start(|number, _| {
            let to = format!("/{number}");
            Some(format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
        });
        let chained = request(format!("http://127.0.0.1:{}/", chain.port));
        assert_eq!(fetcher.fetch(&chained, || true), Err(Failure::Redirects));
        assert_eq!(chain.heard().len(), 2);
        // A name is looked up, and what it stands for counts.
        let by_name = Fetcher::new(Reach::Public, 4, |_| false);
        for host in ["localhost", "127.1", "0x7f.1", "[::ffff:127.0.0.1]", "[::1]"] {
            let outcome = by_name.fetch(&request(format!("http://{host}:{port}/")), || true);
            assert!(matches!(outcome, Err(Failure::Forbidden | Failure::NoHost | Failure::Url)), "{host}: {outcome:?}");
        }
        assert!(private.heard().is_empty());
        let is_node = |address: IpAddr| address.to_string() == "9.9.9.9";
        let other = Fetcher::new(Reach::Public, 4, is_node);
        let short = |url: &str| Request { timeout: Duration::from_millis(50), attempts: 1, ..request(url.into()) };
        assert_eq!(other.fetch(&short("http://9.9.9.9:9/"), || true), Err(Failure::Forbidden));
        let nowhere = Fetcher::new(Reach::Nowhere, 4, |_| false);
        assert_eq!(nowhere.fetch(&request("http://no.such.host.invalid/".into()), || true), Err(Failure::Forbidden));
    }
}
