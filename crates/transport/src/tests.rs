use super::*;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[derive(Default)]
struct Echo {
    messages: Mutex<Vec<(NodeId, u8, Bytes)>>,
    known: Mutex<HashMap<NodeId, Generation>>,
    overtaken: Mutex<Vec<(NodeId, u64)>>,
    /// Who has said that this node was removed.
    removed: Mutex<Vec<NodeId>>,
    may_answer: Arc<tokio::sync::Notify>,
}

impl Handler for Echo {
    fn messages(&self, from: NodeId, messages: &mut Vec<(u8, Bytes)>) {
        self.messages.lock().extend(messages.drain(..).map(|(kind, payload)| (from, kind, payload)));
    }

    fn is_known(&self, node: NodeId) -> bool {
        node.0 < 10
    }

    fn admits(&self, node: NodeId, generation: Generation) -> Result<(), Refusal> {
        let mut known = self.known.lock();
        match known.get(&node).copied() {
            Some(before) if before != generation && before.number >= generation.number => {
                Err(Refusal::Overtaken { known: before.number })
            }
            _ => {
                known.insert(node, generation);
                Ok(())
            }
        }
    }

    fn is_overtaken(&self, by: NodeId, known: u64) {
        self.overtaken.lock().push((by, known));
    }

    fn was_removed(&self, by: NodeId) {
        self.removed.lock().push(by);
    }

    fn request(&self, from: Option<NodeId>, service: u8, payload: Bytes) -> Answer {
        let may_answer = self.may_answer.clone();
        Box::pin(async move {
            match service {
                8 => panic!("a defect"),
                9 => std::future::pending::<()>().await,
                10 => may_answer.notified().await,
                _ => {}
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
    node_that_waits(cluster, number, address, ANSWER)
}

fn secret() -> Secret {
    Secret::new(b"of all nodes of the cluster")
}

fn node_that_waits(cluster: u128, number: u32, address: &str, patience: Duration) -> Node {
    node_of(Generation { number: 5, start: 50 }, cluster, number, address, patience)
}

fn node_of(generation: Generation, cluster: u128, number: u32, address: &str, patience: Duration) -> Node {
    let echo = Arc::new(Echo::default());
    let identity = Identity { cluster: ClusterId(cluster), node: NodeId(number), generation };
    serve(Transport::with_patience(identity, secret(), echo.clone(), patience), echo, address)
}

fn serve(transport: Transport, echo: Arc<Echo>, address: &str) -> Node {
    let transport = Arc::new(transport);
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
async fn a_request_that_gets_no_answer_ends() {
    const PATIENCE: Duration = Duration::from_secs(5);
    let one = node_that_waits(7, 1, "127.0.0.1:0", PATIENCE);
    let two = node(7, 2, "127.0.0.1:0");
    knows(&one, &two);
    until(async || one.transport.request(NodeId(2), 1, b"").await.ok()).await;
    let began = Instant::now();
    assert_eq!(one.transport.request(NodeId(2), 8, b"").await, Err(RequestFailure::Lost), "who serves it panics");
    assert!(began.elapsed() < PATIENCE, "told at once");
    assert_eq!(one.transport.request(NodeId(2), 9, b"").await, Err(RequestFailure::Lost), "no answer ever comes");
    assert!(one.transport.request(NodeId(2), 1, b"").await.is_ok(), "the connection is the same");
}

/// A request that reached a node as it went was lost, and counted as one that may have been carried out.
#[tokio::test]
async fn a_node_that_is_about_to_go_is_asked_no_more_and_answers_what_it_was_asked() {
    let (one, two) = (node(7, 1, "127.0.0.1:0"), node(7, 2, "127.0.0.1:0"));
    knows(&one, &two);
    until(async || one.transport.request(NodeId(2), 1, b"").await.ok()).await;
    let (asking, leaving) = (one.transport.clone(), one.transport.clone());
    let asking = tokio::spawn(async move { asking.request(NodeId(2), 10, b"").await });
    let peer = one.transport.peer(NodeId(2)).unwrap();
    until(async || (peer.waiting() == 1).then_some(())).await;
    let leaving = tokio::spawn(async move { leaving.ask_no_more(NodeId(2)).await });
    until(async || (one.transport.request(NodeId(2), 1, b"").await == Err(RequestFailure::NotSent)).then_some(()))
        .await;
    assert!(!leaving.is_finished(), "it has not answered yet");
    two.echo.may_answer.notify_one();
    leaving.await.unwrap();
    assert_eq!(asking.await.unwrap(), Ok(Bytes::from_static(b"1 ")));
    // It was started again.
    peer.close();
    one.transport.set_peers(&HashMap::new());
    knows(&one, &two);
    until(async || one.transport.request(NodeId(2), 1, b"").await.ok()).await;
}

#[tokio::test]
async fn what_may_wait_is_limited() {
    let (one, two) = (node(7, 1, "127.0.0.1:0"), node(7, 2, "127.0.0.1:0"));
    knows(&one, &two);
    until(async || one.transport.request(NodeId(2), 1, b"").await.ok()).await;
    let peer = one.transport.peer(NodeId(2)).unwrap();
    for _ in 0..REQUESTS_UNDER_WAY {
        let transport = one.transport.clone();
        tokio::spawn(async move { transport.request(NodeId(2), 9, b"").await });
    }
    until(async || (peer.waiting() == REQUESTS_UNDER_WAY).then_some(())).await;
    assert_eq!(one.transport.request(NodeId(2), 1, b"").await, Err(RequestFailure::NotSent));
    peer.close();
    until(async || (peer.waiting() == 0).then_some(())).await;
}

async fn refused(address: &str, secret: &Secret, cluster: u128, from: u32, to: u32) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (cluster, node, generation) = (ClusterId(cluster), NodeId(from), Generation::default());
    let handler: Arc<dyn Handler> = Arc::new(Echo::default());
    let who = (Identity { cluster, node, generation }, NodeId(to), &handler);
    handshake::introduce(&mut stream, secret, *handshake::VERSIONS.end(), Some(who)).await.unwrap_err().to_string()
}

#[tokio::test]
async fn strangers_may_only_ask_and_others_are_refused() {
    let one = node(7, 1, "127.0.0.1:0");
    let answer = ask_stranger(&one.address, &secret(), 1, b"let me in").await.unwrap();
    assert_eq!(&answer[..], b"a stranger let me in");
    let wrong = ask_stranger(&one.address, &Secret::new(b""), 1, b"let me in").await.unwrap_err();
    assert!(wrong.contains("`cluster.secret` must be the same"), "{wrong}");
    ask_stranger(&one.address, &secret(), 1, &[0; frame::STRANGER_BYTES]).await.unwrap_err();
    let address = &one.address;
    for (refusal, reason) in [
        (refused(address, &secret(), 8, 2, 1).await, "belongs to another cluster"),
        (refused(address, &secret(), 0, 2, 1).await, "belongs to another cluster"),
        (refused(address, &secret(), 0, 2, 0).await, "belongs to another cluster"),
        (refused(address, &secret(), 7, 2, 3).await, "this is node 1, not 3"),
        (refused(address, &secret(), 7, 11, 1).await, "node 11 was removed from this cluster"),
        (refused(address, &secret(), 7, 1, 1).await, "node 1 is this node"),
        (refused(address, &Secret::new(b"guessed"), 7, 2, 1).await, "`cluster.secret` must be the same"),
    ] {
        assert!(refusal.contains(reason), "{refusal}");
    }
}

/// `status` once said of a node with another secret that it was silent, and no more.
#[tokio::test]
async fn why_a_node_cannot_be_reached_is_known_until_it_can_be() {
    let identity = |number| Identity { cluster: ClusterId(7), node: NodeId(number), generation: Generation::default() };
    let with = |secret, echo: &Arc<Echo>| Transport::with_patience(identity(2), secret, echo.clone(), ANSWER);
    let one = node(7, 1, "127.0.0.1:0");
    let echo = Arc::new(Echo::default());
    let other = serve(with(Secret::new(b"guessed"), &echo), echo, "127.0.0.1:0");
    knows(&one, &other);
    let trouble = until(async || one.transport.trouble(NodeId(2))).await;
    assert!(trouble.contains("`cluster.secret` must be the same"), "{trouble}");
    assert_eq!(one.transport.silence(NodeId(2)), None);
    let echo = Arc::new(Echo::default());
    let right = serve(with(secret(), &echo), echo, "127.0.0.1:0");
    knows(&one, &right);
    until(async || one.transport.trouble(NodeId(2)).is_none().then_some(())).await;
}

#[tokio::test]
async fn what_a_refusal_says_is_cut_and_has_no_control_characters() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let one = node(7, 1, "127.0.0.1:0");
    let address = listener.local_addr().unwrap().to_string();
    one.transport.set_peers(&HashMap::from([(NodeId(2), address)]));
    let (mut stream, _) = listener.accept().await.unwrap();
    let reason = [&b"\x1b[31mred\n"[..], &[b'x'; 9000]].concat();
    let length = u16::try_from(reason.len()).unwrap().to_le_bytes();
    stream.write_all(&[&[1][..], &length, &reason].concat()).await.unwrap();
    // Versions are refused one after the other.
    let (mut again, _) = listener.accept().await.unwrap();
    again.write_all(&[&[1][..], &length, &reason].concat()).await.unwrap();
    let trouble = until(async || one.transport.trouble(NodeId(2))).await;
    assert!(trouble.starts_with("[31mredxxx") && trouble.len() == 1000, "{trouble}");
}

/// Whoever knows the secret may be broken all the same: its connection ends, and other nodes do not notice.
#[tokio::test]
async fn frames_without_bounds_end_the_connection_of_who_sends_them() {
    let (one, three) = (node(7, 1, "127.0.0.1:0"), node(7, 3, "127.0.0.1:0"));
    knows(&three, &one);
    until(async || three.transport.request(NodeId(1), 1, b"").await.ok()).await;
    let proof = |nonce: &[u8]| secret().prove(&[b"dials  ", &hello(7, 2, 1), nonce]).to_vec();
    for length in [0, frame::FRAME_BYTES as u32 + 1, u32::MAX] {
        let sent = |nonce: &[u8]| [proof(nonce), vec![0], length.to_le_bytes().to_vec(), vec![7; 1000]].concat();
        let rest = tokio::time::timeout(Duration::from_secs(20), try_to_prove(&one.address, sent)).await;
        assert_eq!(rest.expect("the connection ends")[0], 0, "the proof is right");
    }
    assert!(one.echo.messages.lock().is_empty());
    assert!(three.transport.request(NodeId(1), 1, b"").await.is_ok(), "others go on, over the same connection");
}

/// Whoever reaches the port can open connections and say nothing. They once kept every node from connecting.
#[tokio::test]
async fn silent_connections_keep_no_node_from_coming_in() {
    let one = node(7, 1, "127.0.0.1:0");
    let mut silent = Vec::new();
    for _ in 0..inbound::HANDSHAKES {
        silent.push(tokio::net::TcpStream::connect(&one.address).await.unwrap());
    }
    let three = node(7, 3, "127.0.0.1:0");
    knows(&three, &one);
    let began = Instant::now();
    until(async || three.transport.request(NodeId(1), 1, b"").await.ok()).await;
    assert!(
        began.elapsed() < inbound::HANDSHAKE,
        "the silent ones were given up for it, and not because their time was over"
    );
}

#[tokio::test]
async fn a_node_that_was_removed_hears_so_from_those_who_know_the_secret() {
    let removed = node(7, 11, "127.0.0.1:0");
    let one = node(7, 1, "127.0.0.1:0");
    knows(&removed, &one);
    until(async || (removed.echo.removed.lock().first() == Some(&NodeId(1))).then_some(())).await;
    assert_eq!(removed.transport.request(NodeId(1), 1, b"").await, Err(RequestFailure::NotSent));
}

#[tokio::test]
async fn nobody_without_the_secret_can_make_a_node_believe_that_it_was_removed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let forger = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_exact(&mut [0; 80]).await.unwrap();
        stream.write_all(&[0; 33]).await.unwrap();
        stream.read_exact(&mut [0; 32]).await.unwrap();
        // A three, a reason of four bytes, and what is no proof.
        stream.write_all(&[&[3, 4, 0][..], b"gone", &[0; 32]].concat()).await.unwrap();
        stream
    });
    let echo = Arc::new(Echo::default());
    let handler: Arc<dyn Handler> = echo.clone();
    let own = Identity { cluster: ClusterId(7), node: NodeId(2), generation: Generation::default() };
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let who = Some((own, NodeId(1), &handler));
    let error = handshake::introduce(&mut stream, &secret(), *handshake::VERSIONS.end(), who).await.unwrap_err();
    assert!(error.to_string().contains("does not know the cluster's secret"), "{error}");
    assert_eq!(*echo.removed.lock(), []);
    forger.await.unwrap();
}

/// The first message of a node that dials, with a nonce of zeros.
fn hello(cluster: u128, from: u32, to: u32) -> Vec<u8> {
    let numbers = [from.to_le_bytes(), to.to_le_bytes()].concat();
    [b"TESSERA", &[*handshake::VERSIONS.end()][..], &cluster.to_le_bytes(), &numbers, &[0; 16 + secret::LENGTH]]
        .concat()
}

/// Sends the first message, then what `prove` makes of the other end's nonce, and returns all that comes back to that.
async fn try_to_prove(address: &str, prove: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(&hello(7, 2, 1)).await.unwrap();
    let mut answer = [0; 1 + secret::LENGTH];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer[0], 0);
    stream.write_all(&prove(&answer[1..])).await.unwrap();
    let mut rest = Vec::new();
    // The connection may break with what was not read.
    let _ = stream.read_to_end(&mut rest).await;
    rest
}

#[tokio::test]
async fn a_proof_is_of_no_use_again_or_in_the_other_direction() {
    let one = node(7, 1, "127.0.0.1:0");
    let proof = |role: &[u8], nonce: &[u8]| secret().prove(&[role, &hello(7, 2, 1), nonce]).to_vec();
    let seen = Mutex::new(Vec::new());
    let rest = try_to_prove(&one.address, |nonce| {
        *seen.lock() = proof(b"dials  ", nonce);
        // And that it may go on, and a frame of no length, so that the connection ends.
        [seen.lock().clone(), vec![0; 5]].concat()
    });
    assert_eq!((rest.await[0], one.echo.messages.lock().len()), (0, 0), "this one is right");
    let seen = seen.lock().clone();
    let again = try_to_prove(&one.address, |_| seen.clone()).await;
    let reflected = try_to_prove(&one.address, |nonce| proof(b"answers", nonce)).await;
    let mut message = BytesMut::new();
    assert!(frame::message(&mut message, 5, |out| out.extend_from_slice(b"news")));
    let unproven = try_to_prove(&one.address, |_| [vec![0; secret::LENGTH], message.to_vec()].concat()).await;
    for rest in [again, reflected, unproven] {
        assert!(rest.is_empty() || rest[0] == 1, "{rest:?}");
    }
    assert!(one.echo.messages.lock().is_empty());
}

#[tokio::test]
async fn who_answers_must_know_the_secret_too() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let pretends = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut hello = [0; 80];
        stream.read_exact(&mut hello).await.unwrap();
        stream.write_all(&[0; 1 + secret::LENGTH]).await.unwrap();
        let mut proof = [0; secret::LENGTH];
        stream.read_exact(&mut proof).await.unwrap();
        // What it was sent is no proof in this direction.
        stream.write_all(&[&[0; 17][..], &proof].concat()).await.unwrap();
    });
    let refusal = refused(&address, &secret(), 7, 2, 1).await;
    assert!(refusal.contains("does not know the cluster's secret"), "{refusal}");
    pretends.await.unwrap();
}

/// Both ends notice, whoever dials, and nothing is said to a node whose data is older than what it had.
#[tokio::test]
async fn a_generation_that_was_overtaken_is_told_so() {
    let address = |node: &Node| node.address.clone();
    let begin = |number, start| node_of(Generation { number, start }, 7, 2, "127.0.0.1:0", ANSWER);
    let one = node(7, 1, "127.0.0.1:0");
    let two = begin(3, 30);
    knows(&one, &two);
    until(async || one.transport.request(NodeId(2), 1, b"").await.ok()).await;
    // The same count, from the same copy; and an older one.
    for (number, start) in [(3, 31), (2, 20)] {
        for is_dialled in [true, false] {
            let older = begin(number, start);
            one.transport.set_peers(&HashMap::new());
            let (from, to) = if is_dialled { (&one, &older) } else { (&older, &one) };
            from.transport.set_peers(&HashMap::from([(to.transport.identity().node, address(to))]));
            until(async || older.echo.overtaken.lock().contains(&(NodeId(1), 3)).then_some(())).await;
            assert!(from.transport.request(to.transport.identity().node, 1, b"").await.is_err());
        }
    }
    let next = begin(4, 40);
    knows(&next, &one);
    until(async || next.transport.request(NodeId(1), 1, b"").await.ok()).await;
    assert!(next.echo.overtaken.lock().is_empty() && next.transport.has_tried(NodeId(1)));
    assert_eq!(one.echo.known.lock()[&NodeId(2)], Generation { number: 4, start: 40 }, "both have seen one another");
    assert_eq!(next.echo.known.lock()[&NodeId(1)], Generation { number: 5, start: 50 });
}

/// A node of another version of the program, which speaks these versions of the protocol.
fn node_that_speaks(number: u32, versions: RangeInclusive<u8>) -> Node {
    let echo = Arc::new(Echo::default());
    let generation = Generation { number: 5, start: 50 };
    let identity = Identity { cluster: ClusterId(7), node: NodeId(number), generation };
    let transport = Transport::with_patience(identity, secret(), echo.clone(), ANSWER);
    serve(Transport { versions, ..transport }, echo, "127.0.0.1:0")
}

#[tokio::test]
async fn nodes_whose_versions_differ_by_one_work_together() {
    // The first one stands for a program of before this, which speaks one version only.
    for (one, two, common) in [(5..=5, 5..=6, 5), (5..=6, 6..=7, 6), (6..=7, 6..=7, 7)] {
        let (one, two) = (node_that_speaks(1, one), node_that_speaks(2, two));
        for (from, to) in [(&one, &two), (&two, &one)] {
            knows(from, to);
            let node = to.transport.identity().node;
            assert_eq!(from.transport.version_with(node), None);
            let answer = until(async || from.transport.request(node, 1, b"hello").await.ok()).await;
            assert_eq!(&answer[..], format!("{} hello", from.transport.identity().node).as_bytes());
            assert_eq!(from.transport.version_with(node), Some(common));
        }
    }
}

#[tokio::test]
async fn nodes_whose_versions_differ_by_more_refuse_each_other() {
    let (one, two) = (node_that_speaks(1, 5..=6), node_that_speaks(2, 7..=8));
    for (from, to) in [(&one, &two), (&two, &one)] {
        knows(from, to);
        let node = to.transport.identity().node;
        until(async || from.transport.has_tried(node).then_some(())).await;
        assert_eq!(from.transport.request(node, 1, b"hello").await, Err(RequestFailure::NotSent));
        assert_eq!(from.transport.version_with(node), None);
    }
    let refusal = {
        let mut stream = tokio::net::TcpStream::connect(&two.address).await.unwrap();
        handshake::introduce(&mut stream, &secret(), 6, None).await.unwrap_err()
    };
    assert_eq!(refusal.kind(), std::io::ErrorKind::Unsupported);
    assert!(refusal.to_string().contains("speaks versions 7 and 8 of the protocol between nodes, not 6"), "{refusal}");
}
