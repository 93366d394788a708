//! A node that was removed from its cluster.
//!
//! Whoever is removed holds no replicas, so nobody lacks what it had; but it may be away just then, or go on for a while with
//! the last catalog that it heard. Other nodes close its connections and refuse new ones, and say why, with the proof that they
//! know the cluster's secret. Then the node refuses its clients at once, where it would look for leaders in vain, and says
//! how the machine may be used again. It goes on to run, so that whoever asks it is told.

use crate::node_context::NodeContext;
use tessera_types::NodeId;

impl NodeContext {
    /// Another node says that this one was removed.
    pub(crate) fn note_removed(&self, by: NodeId) {
        if self.view.note_removed() {
            tracing::error!(
                %by,
                "this node was removed from the cluster and answers no clients any more. To use this machine again, stop the node and \
                 start it with an empty data directory: it joins as a new node"
            );
        }
    }
}
