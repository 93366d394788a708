//! What the loop of a worker shows of its groups.

use tessera_consensus::{GroupView, Inbox};

/// Asks the loop of an inbox how its groups are. A worker that has ended shows nothing.
pub(crate) async fn look<C>(inbox: &Inbox<C>) -> Vec<GroupView> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    inbox.look(Box::new(move |views| _ = sender.send(views)));
    receiver.await.unwrap_or_default()
}
