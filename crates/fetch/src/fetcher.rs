//! Making requests, on threads of their own, so that nobody waits for one longer than wanted.

use crate::reach::Reach;
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
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, Error};

/// The largest body of an answer, in bytes.
pub const ANSWER_BYTES: u64 = 16 << 20;
/// The longest time that a request may take, whatever is asked for.
pub const LONGEST: Duration = Duration::from_secs(600);
/// How often is looked whether anybody still waits.
const LOOK: Duration = Duration::from_millis(20);

/// Whether requests may go to an address.
type Allows = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// Makes requests for clients of a node.
pub struct Fetcher {
    allows: Allows,
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
    /// Makes at most so many requests at one time.
    pub fn new(reach: Reach, most: usize) -> Self {
        Self::with(Arc::new(move |address| reach.allows(address)), most)
    }

    fn with(allows: Allows, most: usize) -> Self {
        Self { allows, most, under_way: Arc::default() }
    }

    /// Makes a request as often as it says. Blocks while `goes_on` says that the answer is wanted.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn fetch(&self, request: &Request, goes_on: impl Fn() -> bool) -> Result<Answer, Failure> {
        if request.timeout.is_zero() {
            return Err(Failure::TimedOut(request.timeout));
        }
        let until = Instant::now() + request.timeout.min(LONGEST);
        let mut outcome = Err(Failure::NoAttempts);
        for _ in 0..request.attempts {
            outcome = self.fetch_once(request, until, &goes_on);
            match &outcome {
                Ok(answer) if answer.may_pass() => {}
                Err(failure) if failure.may_pass() => {}
                _ => break,
            }
        }
        outcome
    }

    /// Makes a request on a thread of its own, which goes on for a while if nobody wants the answer any more: it counts as long.
    fn fetch_once(&self, request: &Request, until: Instant, goes_on: &impl Fn() -> bool) -> Result<Answer, Failure> {
        let timed_out = || Failure::TimedOut(request.timeout.min(LONGEST));
        if self.under_way.fetch_add(1, Ordering::Relaxed) >= self.most {
            self.under_way.fetch_sub(1, Ordering::Relaxed);
            return Err(Failure::TooMany);
        }
        let under_way = UnderWay(self.under_way.clone());
        let (sender, receiver) = sync_channel(1);
        let (allows, wanted) = (self.allows.clone(), request.clone());
        let thread = std::thread::Builder::new().name("http-fetch".into());
        let run = move || {
            let _under_way = under_way;
            let _ = sender.send(perform(allows, &wanted, until));
        };
        thread.spawn(run).map_err(|error| Failure::Request(error.to_string()))?;
        loop {
            match receiver.recv_timeout(LOOK) {
                Ok(outcome) => return outcome.map_err(|failure| failure.unwrap_or_else(timed_out)),
                Err(RecvTimeoutError::Disconnected) => return Err(Failure::Broken),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= until => return Err(timed_out()),
                Err(RecvTimeoutError::Timeout) if goes_on() => {}
                Err(RecvTimeoutError::Timeout) => return Err(Failure::Interrupted),
            }
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
#[error("{0}")]
struct NotAllowed(String);

impl Resolver for Guarded {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let found = self.resolver.resolve(uri, config, timeout)?;
        let mut allowed = self.empty();
        found.iter().filter(|address| (self.allows)(address.ip())).for_each(|address| allowed.push(*address));
        match found.first() {
            Some(first) if allowed.is_empty() => {
                Err(Error::Io(io::Error::new(io::ErrorKind::PermissionDenied, NotAllowed(first.ip().to_string()))))
            }
            _ => Ok(allowed),
        }
    }
}

/// Makes a request once. `None` says that it took too long.
fn perform(allows: Allows, request: &Request, until: Instant) -> Result<Answer, Option<Failure>> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(None);
    }
    let tls = TlsConfig::builder().disable_verification(!request.verify).build();
    let config = Config::builder()
        .timeout_global(Some(left))
        .max_redirects(request.redirects)
        .http_status_as_error(false)
        .allow_non_standard_methods(true)
        // What stands in the environment of the node is not for its clients.
        .proxy(None)
        .tls_config(tls)
        .user_agent(concat!("tessera/", env!("CARGO_PKG_VERSION")))
        .build();
    let resolver = Guarded { resolver: DefaultResolver::default(), allows };
    let agent = Agent::with_parts(config, DefaultConnector::default(), resolver);
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
        // With a port behind the host, or something that looks like one.
        None if text.is_empty() || text.ends_with(':') => Err(Failure::Url),
        None => Ok(format!("http://{text}")),
    }
}

fn failure(error: Error) -> Option<Failure> {
    Some(match error {
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
    if let Some(NotAllowed(address)) = error.get_ref().and_then(|inner| inner.downcast_ref()) {
        return Some(Failure::Forbidden(address.clone()));
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
        Fetcher::new(Reach::Everywhere, 4)
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
        let (fetcher, url) = (Fetcher::new(Reach::Everywhere, 1), format!("http://127.0.0.1:{}", server.port));
        assert_eq!(fetcher.fetch(&request(format!("{url}/long")), || true), Err(Failure::TooLong(ANSWER_BYTES)));
        let short = Duration::from_millis(200);
        let silent = Request { timeout: short, ..request(format!("{url}/silent")) };
        assert_eq!(fetcher.fetch(&silent, || true), Err(Failure::TimedOut(short)));
        let at_once = Request { timeout: Duration::ZERO, ..silent.clone() };
        assert_eq!(fetcher.fetch(&at_once, || true), Err(Failure::TimedOut(Duration::ZERO)));
        // Whoever does not want the answer any more does not wait for it, but the request counts until it ends.
        let began = Instant::now();
        let fetcher = Fetcher::new(Reach::Everywhere, 1);
        assert_eq!(fetcher.fetch(&request(format!("{url}/silent")), || false), Err(Failure::Interrupted));
        assert!(began.elapsed() < Duration::from_secs(10));
        assert_eq!(fetcher.fetch(&silent, || true), Err(Failure::TooMany));
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
        let fetcher = Fetcher::with(Arc::new(allows), 4);
        let url = format!("http://127.0.0.1:{}", public.port);
        assert_eq!(fetcher.fetch(&request(format!("{url}/")), || true).unwrap().body, b"public");
        let forbidden = Err(Failure::Forbidden("127.0.0.2".into()));
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
        let by_name = Fetcher::new(Reach::Public, 4);
        for host in ["localhost", "127.1", "0x7f.1", "[::ffff:127.0.0.1]", "[::1]"] {
            let outcome = by_name.fetch(&request(format!("http://{host}:{port}/")), || true);
            assert!(
                matches!(outcome, Err(Failure::Forbidden(_) | Failure::NoHost | Failure::Url)),
                "{host}: {outcome:?}"
            );
        }
        assert!(private.heard().is_empty());
    }
}
