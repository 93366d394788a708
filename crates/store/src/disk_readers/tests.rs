use super::*;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(30);

async fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LONG, "{what}: not within {LONG:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn queued(readers: &DiskReaders) -> usize {
    readers.0.queue.lock().reads.len()
}

#[tokio::test]
async fn parts_are_made_beside_one_another_and_keep_their_places() {
    let readers = DiskReaders::new(8);
    // Each waits for all others.
    let met = std::sync::Barrier::new(8);
    let read = move |part: usize| {
        met.wait();
        part * part
    };
    let values = tokio::time::timeout(LONG, readers.read_parts(8, read)).await.unwrap().unwrap();
    assert_eq!(values, (0..8).map(|part| part * part).collect::<Vec<_>>());
    assert!(readers.read_parts(0, |part| part).await.unwrap().is_empty());
    let queue = readers.0.queue.lock();
    assert!(queue.threads <= 8 && queue.reads.is_empty());
}

#[tokio::test]
async fn a_long_read_does_not_hold_up_a_short_one() {
    let readers = Arc::new(DiskReaders::new(1));
    let (go_on, wait) = channel::<()>();
    let (wait, begun) = (Mutex::new(wait), Arc::new(AtomicUsize::new(0)));
    let long = {
        let (readers, begun) = (readers.clone(), begun.clone());
        let read = move |_| {
            begun.fetch_add(1, Ordering::SeqCst);
            wait.lock().recv_timeout(LONG).unwrap();
        };
        tokio::spawn(async move { readers.read_parts(100, read).await })
    };
    wait_for("the first part is being made", || begun.load(Ordering::SeqCst) == 1).await;
    let short = {
        let (readers, begun) = (readers.clone(), begun.clone());
        tokio::spawn(async move { readers.read_from_disk(move || begun.load(Ordering::SeqCst)).await })
    };
    wait_for("both are queued", || queued(&readers) == 2).await;
    (0..100).for_each(|_| go_on.send(()).unwrap());
    let before = short.await.unwrap().unwrap();
    assert!(before <= 2, "{before} parts of the long one were made first");
    assert_eq!(long.await.unwrap().unwrap().len(), 100);
}

#[tokio::test]
async fn what_nobody_waits_for_any_more_is_not_made() {
    let readers = DiskReaders::new(1);
    let (go_on, wait) = channel::<()>();
    let (wait, made) = (Mutex::new(wait), Arc::new(AtomicUsize::new(0)));
    let read = {
        let made = made.clone();
        move |_| {
            made.fetch_add(1, Ordering::SeqCst);
            let _ = wait.lock().recv_timeout(LONG);
        }
    };
    tokio::select! {
        _ = readers.read_parts(50, read) => panic!("nobody has let it go on"),
        () = wait_for("the first part is being made", || made.load(Ordering::SeqCst) == 1) => {}
    }
    drop(go_on);
    readers.read_from_disk(|| ()).await.unwrap();
    wait_for("the queue is empty", || queued(&readers) == 0).await;
    assert_eq!(made.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn whoever_waits_is_told_when_a_read_panics_or_the_node_stops() {
    let readers = Arc::new(DiskReaders::new(1));
    let panics = |part| assert!(part != 1, "a read that is to panic");
    assert!(matches!(readers.read_parts(3, panics).await, Err(RequestError::Engine(_))));
    assert_eq!(readers.read_from_disk(|| 1).await.unwrap(), 1, "its thread goes on");

    let (go_on, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let (first, other, closing) = (readers.clone(), readers.clone(), readers.clone());
    let under_way =
        tokio::spawn(async move { first.read_from_disk(move || wait.lock().recv_timeout(LONG).is_ok()).await });
    wait_for("the only thread is busy", || {
        let queue = readers.0.queue.lock();
        queue.threads == 1 && queue.idle == 0 && queue.reads.is_empty()
    })
    .await;
    let waiting = tokio::spawn(async move { other.read_from_disk(|| ()).await });
    wait_for("another read waits", || queued(&readers) == 1).await;
    let closing = std::thread::spawn(move || closing.close());
    assert!(waiting.await.unwrap().is_err(), "it is not made any more");
    assert!(!closing.is_finished(), "the one under way is waited for");
    go_on.send(()).unwrap();
    assert!(under_way.await.unwrap().unwrap());
    closing.join().unwrap();
    assert_eq!(readers.read_from_disk(|| ()).await, Err(RequestError::ShuttingDown));
    assert_eq!(readers.begin(|| ()), Err(RequestError::ShuttingDown));
}
