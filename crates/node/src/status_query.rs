//! Asking a worker for the state of its groups.

use tessera_consensus::{GroupView, Inbox};

/// Asks the worker of an inbox for the state of its groups. A worker that has ended gives none.
pub(crate) async fn query_status<C>(inbox: &Inbox<C>) -> Vec<GroupView> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    inbox.query_status(Box::new(move |views| _ = sender.send(views)));
    receiver.await.unwrap_or_default()
}
