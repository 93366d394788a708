//! Who is right when replicas differ.

use std::collections::BTreeMap;
use tessera_engine::SliceDigest;
use tessera_types::ReplicaId;

/// What replicas have in the same slice, at the same log index.
pub(super) type Digests = BTreeMap<ReplicaId, SliceDigest>;

pub(super) fn are_equal(digests: &Digests) -> bool {
    let mut digests = digests.values();
    let first = digests.next();
    digests.all(|digest| Some(digest) == first)
}

/// The replicas that differ from what a majority of all voters agrees on; none if there is no such majority, since then
/// nobody can tell who is right.
pub(super) fn standing_alone(digests: &Digests, voters: usize) -> Vec<ReplicaId> {
    let agreeing = |digest: &SliceDigest| digests.values().filter(|other| *other == digest).count();
    let Some(agreed) = digests.values().find(|digest| agreeing(digest) > voters / 2) else { return Vec::new() };
    digests.iter().filter(|(_, digest)| *digest != agreed).map(|(replica, _)| *replica).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_types::NodeId;

    fn replica(node: u32) -> ReplicaId {
        ReplicaId { node: NodeId(node), incarnation: 1 }
    }

    fn digests(hashes: &[u128]) -> Digests {
        let digest = |hash: u128| SliceDigest { records: 1, bytes: 1, hash, next: None, is_cut: false };
        (1..).zip(hashes).map(|(node, hash)| (replica(node), digest(*hash))).collect()
    }

    #[test]
    fn who_stands_alone_against_a_majority_of_all_voters_is_known() {
        assert!(are_equal(&digests(&[7, 7, 7])) && !are_equal(&digests(&[7, 7, 8])));
        let alone = |hashes: &[u128], voters| standing_alone(&digests(hashes), voters);
        assert_eq!(alone(&[7, 8, 7], 3), [replica(2)]);
        assert_eq!(alone(&[7, 8, 9], 3), []);
        // Two replicas and a witness, which has no records: nobody can tell.
        assert_eq!(alone(&[7, 8], 3), []);
        // One of three is away.
        assert_eq!(alone(&[7, 8], 3), []);
        assert_eq!(alone(&[7, 8, 7, 7, 9], 5), [replica(2), replica(5)]);
        assert_eq!(alone(&[7, 8, 7, 8], 5), []);
    }

    #[test]
    fn a_place_where_the_next_slice_begins_that_differs_is_a_difference() {
        let mut digests = digests(&[7, 7]);
        digests.get_mut(&replica(1)).unwrap().next = Some(bytes::Bytes::from_static(b"k"));
        assert!(!are_equal(&digests));
    }
}
