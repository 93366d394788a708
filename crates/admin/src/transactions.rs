//! Metrics of transactions over partitions.

use crate::scrape::Scrape;
use tessera_store::TransactionCounts;

/// Adds the transactions that a node coordinates, and what stands in partitions that it leads.
pub(crate) fn measure(transactions: TransactionCounts, scrape: &mut Scrape) {
    let TransactionCounts { committed, refused, not_done, unknown, tried_again, recovered, open } = transactions;
    let ended = [("committed", committed), ("refused", refused), ("not done", not_done), ("unknown", unknown)];
    for (outcome, count) in ended {
        let help = "Transactions over partitions that this node carried out for clients";
        scrape.set("tessera_transactions_total", help, &[("outcome", outcome)], count as f64);
    }
    let help = "Attempts that gave way to others, or lost their table to a split";
    scrape.set("tessera_transaction_retries_total", help, &[], tried_again as f64);
    let help = "Intents and commits without a coordinator that leaders here brought to an end";
    scrape.set("tessera_transactions_recovered_total", help, &[], recovered as f64);
    let help = "Intents and commits that stand in partitions led here";
    scrape.set("tessera_transactions_open", help, &[], open as f64);
}
