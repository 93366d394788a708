use super::*;
use parking_lot::Mutex;

#[derive(Default)]
struct Echo {
    messages: Mutex<Vec<(NodeId, u8, Bytes)>>,
}

impl Handler for Echo {
    fn messages(&self, from: NodeId, messages: &mut Vec<(u8, Bytes)>) {
        self.messages.lock().extend(messages.drain(..).map(|(kind, payload)| (from, kind, payload)));
    }

    fn request(&self, from: Option<NodeId>, service: u8, payload: Bytes) -> Answer {
        Box::pin(async move {
            if service == 9 {
                std::future::pending::<()>().await;
            }
            let who = from.map_or_else(|| "a stranger".into(), |node| node.to_string());
            Bytes::from([who.as_bytes(), b" ", &payload].concat())
        })
    }
}

struct Node {
    transport: Arc<Transport>,
    echo: Arc<Echo>,
    address: String,
    serving: tokio::task::JoinHandle<()>,
}

fn node(cluster: u128, number: u32, address: &str) -> Node {
    let echo = Arc::new(Echo::default());
    let identity = Identity { cluster: ClusterId(cluster), node: NodeId(number) };
    let transport = Transport::new(identity, echo.clone());
    let listener = std::net::TcpListener::bind(address).unwrap();
    listener.set_nonblocking(true).unwrap();
    let listener = TcpListener::from_std(listener).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serving = tokio::spawn(transport.clone().serve(listener));
    Node { transport, echo, address, serving }
}

async fn until<T>(mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = check().await {
            return found;
        }
        assert!(Instant::now() < deadline, "not in time");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn knows(one: &Node, other: &Node) {
    let number = other.transport.identity().node;
    one.transport.set_peers(&HashMap::from([(number, other.address.clone())]));
}

#[tokio::test]
async fn nodes_talk_and_find_one_another_again() {
    let (one, two) = (node(7, 1, "127.0.0.1:0"), node(7, 2, "127.0.0.1:0"));
    knows(&one, &two);
    let answer = until(async || one.transport.request(NodeId(2), 1, b"hello").await.ok()).await;
    assert_eq!(&answer[..], b"1 hello");
    one.transport.send(NodeId(2), 5, &[b"news"], |news, out| out.extend_from_slice(*news));
    until(async || (!two.echo.messages.lock().is_empty()).then_some(())).await;
    assert_eq!(two.echo.messages.lock()[0], (NodeId(1), 5, Bytes::from_static(b"news")));
    assert!(one.transport.silence(NodeId(2)).is_some_and(|silence| silence < Duration::from_secs(5)));

    // The other node goes while a request waits, and comes back under another address.
    let asking = {
        let transport = one.transport.clone();
        tokio::spawn(async move { transport.request(NodeId(2), 9, b"").await })
    };
    until(async || one.transport.request(NodeId(2), 1, b"").await.ok()).await;
    two.serving.abort();
    one.transport.peer(NodeId(2)).unwrap().close();
    assert_eq!(asking.await.unwrap(), Err(RequestFailure::Lost));
    one.transport.set_peers(&HashMap::new());
    assert_eq!(one.transport.request(NodeId(2), 1, b"").await, Err(RequestFailure::NotSent));
    let two = node(7, 2, "127.0.0.1:0");
    knows(&one, &two);
    until(async || one.transport.request(NodeId(2), 1, b"again").await.ok()).await;
}

#[tokio::test]
async fn strangers_may_only_ask_and_others_are_refused() {
    let (one, other) = (node(7, 1, "127.0.0.1:0"), node(8, 2, "127.0.0.1:0"));
    assert_eq!(&ask_stranger(&one.address, 1, b"let me in").await.unwrap()[..], b"a stranger let me in");
    for (who, to) in [(other.transport.identity(), NodeId(1)), (one.transport.identity(), NodeId(3))] {
        let mut stream = tokio::net::TcpStream::connect(&one.address).await.unwrap();
        let refusal = handshake::introduce(&mut stream, Some((who, to))).await.unwrap_err().to_string();
        assert!(
            refusal.contains("this node belongs to cluster") || refusal.contains("this is node 1, not 3"),
            "{refusal}"
        );
    }
}
