//! Connections to the admin port.
//!
//! Whoever reaches the port may connect before a token is asked for, so what a connection may cost is bounded: there are
//! [`CONNECTIONS`] at one time, and each has to send the head and the body of a request, and to take its answer, within [`Patience`].

use crate::failure::Failure;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tessera_face::{Handshakes, Patient, Stream, Tls, accept};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Accepts HTTP connections, over TLS if there is a certificate.
pub struct AdminListener {
    listener: TcpListener,
    tls: Option<Tls>,
    handshakes: Arc<Handshakes>,
    /// Connections that have been accepted and not taken in yet, each of which may come to nothing.
    incoming: JoinSet<std::io::Result<(Stream, SocketAddr)>>,
}

/// Where the connection of a request comes from.
#[derive(Clone, Copy)]
pub(crate) struct ClientAddress(pub(crate) SocketAddr);

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Handshakes at one time.
const HANDSHAKES: usize = 64;

/// Connections at one time; who comes then waits until one of them ends.
const CONNECTIONS: usize = 512;
/// The longest body of a request.
const BODY_BYTES: usize = 2 << 20;

/// How long a client may take.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    /// To send the head of a request, the first one or the next.
    pub head: Duration,
    /// To send its body.
    pub body: Duration,
    /// To take a part of what it is answered.
    pub answer: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { head: Duration::from_secs(30), body: Duration::from_secs(30), answer: Duration::from_secs(60) }
    }
}

impl AdminListener {
    /// Takes connections from `listener`; with `tls`, every one of them must speak it.
    pub fn new(listener: TcpListener, tls: Option<Tls>) -> Self {
        let handshakes = Arc::new(Handshakes::new(HANDSHAKES, HANDSHAKE));
        Self { listener, tls, handshakes, incoming: JoinSet::new() }
    }
}

impl AdminListener {
    /// Serves until `stop` is ready, and then until the requests under way are answered.
    pub(crate) async fn serve(mut self, router: Router, patience: Patience, stop: impl Future<Output = ()>) {
        let router =
            router.layer(axum::middleware::from_fn(move |request: Request, next: axum::middleware::Next| async move {
                match whole(request, patience.body).await {
                    Ok(request) => next.run(request).await,
                    Err(refusal) => refusal,
                }
            }));
        let graceful = hyper_util::server::graceful::GracefulShutdown::new();
        let mut connections = JoinSet::new();
        let mut stop = pin!(stop);
        loop {
            let (stream, address) = tokio::select! {
                () = &mut stop => break,
                Some(_) = connections.join_next() => continue,
                stream = self.accept(), if connections.len() < CONNECTIONS => stream,
            };
            let service = TowerToHyperService::new(router.clone().layer(Extension(ClientAddress(address))));
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(patience.head)
                .serve_connection(TokioIo::new(Patient::new(stream, patience.answer)), service);
            let connection = graceful.watch(connection);
            connections.spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "an admin connection was lost");
                }
            });
        }
        drop(self);
        graceful.shutdown().await;
    }

    async fn accept(&mut self) -> (Stream, SocketAddr) {
        loop {
            let (stream, address) = tokio::select! {
                Some(outcome) = self.incoming.join_next() => match outcome {
                    Ok(Ok(stream)) => return stream,
                    Ok(Err(_)) | Err(_) => continue,
                },
                accepted = accept(&self.listener) => accepted,
            };
            let Some(tls) = self.tls.clone() else { return (Stream::Plain(stream), address) };
            let handshakes = self.handshakes.clone();
            self.incoming
                .spawn(async move { Ok((Stream::accept_as_one_of(&handshakes, stream, Some(&tls)).await?, address)) });
        }
    }
}

/// The request with its whole body.
///
/// # Errors
/// What to answer if the body is too long or does not come in time.
async fn whole(request: Request, patience: Duration) -> Result<Request, Response> {
    let (head, body) = request.into_parts();
    let (status, reason) = match tokio::time::timeout(patience, to_bytes(body, BODY_BYTES)).await {
        Ok(Ok(body)) => return Ok(Request::from_parts(head, Body::from(body))),
        Ok(Err(_)) => {
            let reason = format!("the body was cut off, or has more than {BODY_BYTES} bytes");
            (StatusCode::PAYLOAD_TOO_LARGE, reason)
        }
        Err(_) => {
            let reason = format!("the body did not come within {} seconds", patience.as_secs_f64());
            (StatusCode::REQUEST_TIMEOUT, reason)
        }
    };
    Err(Failure::of_status(status, reason).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::{get, post};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    /// What a connection has been answered when the server ends it.
    async fn answer(address: std::net::SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let read = tokio::time::timeout(Duration::from_secs(20), stream.read_to_string(&mut answer)).await;
        read.expect("the server ends the connection").unwrap();
        answer
    }

    /// They were kept for ever, until the process had no descriptors left.
    #[tokio::test]
    async fn requests_that_do_not_come_are_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new()
            .route("/slow", get(|| tokio::time::sleep(Duration::from_millis(500))))
            .route("/echo", post(|body: String| async { body }));
        let short = Duration::from_millis(200);
        let patience = Patience { head: short, body: short, answer: short };
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let stopped = async { _ = stopped.await };
        let server = tokio::spawn(AdminListener::new(listener, None).serve(router, patience, stopped));
        assert_eq!(answer(address, "GET /slow HTTP/1.1\r\nHost: half").await, "");
        let late =
            answer(address, "POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 9\r\n\r\nhalf")
                .await;
        assert!(late.starts_with("HTTP/1.1 408 "), "{late}");
        // What takes the server long is not the client's fault, and one that kept its connection for another request may go.
        let done = answer(address, "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(done.starts_with("HTTP/1.1 200 "), "{done}");
        let whole =
            answer(address, "POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 4\r\n\r\nwhat")
                .await;
        assert!(whole.starts_with("HTTP/1.1 200 ") && whole.ends_with("what"), "{whole}");
        stop.send(()).unwrap();
        tokio::time::timeout(Duration::from_secs(20), server).await.unwrap().unwrap();
    }

    /// An answer that says when it is let go of.
    struct Answer {
        text: Vec<u8>,
        kept: tokio::sync::mpsc::Sender<()>,
    }

    impl AsRef<[u8]> for Answer {
        fn as_ref(&self) -> &[u8] {
            &self.text
        }
    }

    impl Drop for Answer {
        fn drop(&mut self) {
            let _ = self.kept.try_send(());
        }
    }

    /// They kept their connections, and what they were answered, for ever.
    #[tokio::test]
    async fn who_takes_no_answer_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (kept, mut gone) = tokio::sync::mpsc::channel::<()>(1);
        let long = move || {
            let answer = Answer { text: vec![b'x'; 64 << 20], kept: kept.clone() };
            std::future::ready(axum::body::Bytes::from_owner(answer))
        };
        let router = Router::new().route("/", post(long));
        let patience = Patience { answer: Duration::from_millis(200), ..Patience::default() };
        tokio::spawn(AdminListener::new(listener, None).serve(router, patience, std::future::pending()));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        let mut begin = [0; 8];
        stream.read_exact(&mut begin).await.unwrap();
        assert_eq!(&begin, b"HTTP/1.1");
        let has_gone = async { while gone.recv().await != Some(()) {} };
        tokio::time::timeout(Duration::from_secs(20), has_gone).await.expect("the answer is let go of");
    }

    /// Requests that are answered still come through while others hold as many connections as there may be.
    #[tokio::test]
    async fn connections_are_bounded_and_make_room() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", get(|| async { "here" }));
        let patience = Patience { head: Duration::from_millis(300), ..Patience::default() };
        tokio::spawn(AdminListener::new(listener, None).serve(router, patience, std::future::pending()));
        let mut silent = Vec::new();
        for _ in 0..CONNECTIONS + 1 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let served = answer(address, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
        assert!(served.ends_with("here"), "{served}");
    }
}
