//! Names that were given up for the terms of the glossary in ARCHITECTURE.md: none of them comes back into the code.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Each retired name, with the name that the code has for it now.
const RETIRED: &[(&str, &str)] = &[
    ("lie_down", "hibernate"),
    ("stir", "wake"),
    ("is_tired", "is_idle"),
    ("sparing", "standby"),
    ("spared", "standby"),
    ("orphans", "in_doubt"),
    ("Orphans", "InDoubt"),
    ("ticket", "pending_reply"),
    ("Ticket", "PendingReply"),
    ("answered_early", "leader_acked"),
    ("arrivals", "snapshot_installs"),
    ("Arrivals", "SnapshotInstalls"),
    ("hand_over", "transfer_leadership"),
    ("depose", "step_down"),
    ("founders", "initial_members"),
    ("told_leader", "reported_leader"),
    ("has_forgotten", "amnesiac"),
    ("let_go_on", "readmit"),
    ("stranded", "unreachable_by_log"),
    ("bridge", "force_recover"),
    ("rescue", "help_unreachable"),
    ("Rounds", "Reconciler"),
    ("settle_replicas", "reconcile_replicas"),
    ("outflow", "change_capture"),
    ("Outflow", "ChangeCapture"),
    ("is_shut", "refuses_requests"),
    ("Look", "StatusQuery"),
    ("looked_at", "scanned"),
    ("owed_bytes", "unreplicated_bytes"),
    ("others_fetch", "on_fetch_progress"),
    ("others_lead", "on_leaders"),
    ("Understood", "DecodedRequest"),
    ("make_gets", "serve_get_batch"),
    ("slow_writes", "stalled_writes"),
    ("SlowWrites", "StalledWrites"),
    ("EndTogether", "AbortOnPanic"),
    ("parts_come_back", "parts_round_trip"),
];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The code of a line: without a comment at its end, and without what is in quotes. Names on disk and texts for people are in quotes,
/// and may have other words.
fn code(line: &str) -> String {
    let line = line.replace(r#"\""#, "");
    line.split('"').step_by(2).collect::<Vec<_>>().join(" ").split("//").next().unwrap().to_string()
}

#[test]
fn retired_names_are_in_no_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for directory in ["crates", "fuzz"] {
        sources(&root.join(directory), &mut files);
    }
    let (mut names, mut found) = (BTreeSet::new(), Vec::new());
    for path in &files {
        for (number, line) in fs::read_to_string(path).unwrap().lines().enumerate() {
            for name in code(line).split(|sign: char| !sign.is_alphanumeric() && sign != '_') {
                if let Some((retired, now)) = RETIRED.iter().find(|(retired, _)| *retired == name) {
                    found.push(format!("{}:{}: {retired}, now {now}", path.display(), number + 1));
                }
                names.insert(name.to_string());
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    let gone: Vec<_> = RETIRED.iter().filter(|(_, now)| !names.contains(*now)).collect();
    assert!(gone.is_empty(), "these names took the place of retired ones, and are in no code: {gone:?}");
}
