//! The kinds of messages that nodes send each other. What they ask each other has numbers of its own:
//! [`tessera_store::hosting::number`].

/// What replicas of a group tell each other.
pub(crate) const GROUP: u8 = 1;
/// Which groups the sender leads, each with the term.
pub(crate) const LEADS: u8 = 2;
/// That the sender is about to stop, or wants others to lead. If its disk takes no writes, [why](tessera_store::hosting::encode_reason).
pub(crate) const STOPS: u8 = 3;
/// How far the sender is with snapshots that it fetches.
pub(crate) const FETCHES: u8 = 4;
/// That the sender does not stop after all, and its disk takes writes.
pub(crate) const STAYS: u8 = 5;
/// What partitions that the sender leads hold, and are asked.
pub(crate) const TRAFFIC: u8 = 6;
/// Where the sender is found now.
pub(crate) const ADDRESS: u8 = 7;
/// What a replica has in a slice that is being compared.
pub(crate) const DIGEST: u8 = 8;
/// What became of a comparison.
pub(crate) const COMPARED: u8 = 9;
/// Which replicas of the sender are damaged.
pub(crate) const DAMAGED: u8 = 10;
