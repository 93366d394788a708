//! What clients ask: how long it takes, what fails, and what is found.

use crate::scrape::Scrape;
use tessera_node::Node;

/// Adds what the faces have counted to the metrics.
pub(crate) fn measure(node: &Node, scrape: &mut Scrape) {
    for face in node.store().face_statistics() {
        for requests in face.requests {
            let labels = [("face", face.name), ("table", &requests.table), ("kind", requests.kind.name())];
            let help = "From when the node that the client asked has read a request until its reply is made";
            scrape.set_histogram("tessera_request_duration_seconds", help, &labels, requests.times);
        }
        for command in &face.commands {
            let labels = [("face", face.name), ("command", command.name)];
            let help = "Errors that a command was answered with";
            scrape.set("tessera_command_errors_total", help, &labels, command.errors as f64);
            let Some((hits, misses)) = command.lookups else { continue };
            for (result, count) in [("hit", hits), ("miss", misses)] {
                let labels = [labels[0], labels[1], ("result", result)];
                let help = "Keys and fields that a command looked for";
                scrape.set("tessera_key_lookups_total", help, &labels, count as f64);
            }
        }
    }
}
