//! Messages that a leader made before it stepped down, and sent only when its disk was ready.

use super::*;

/// A leader makes a message for one replica and steps down because of the next message it receives, both in one pass.
/// Its own message waits for the log, and once went out with what the next leader's entry of the same index carries.
#[test]
fn a_message_of_a_former_leader_never_carries_its_successors_entry() {
    let mut world = World::new(1, Kind { nodes: 5, initial_members: 5, ..STEADY });
    world.loss = 0.0;
    (0..600).for_each(|_| world.step());
    assert_eq!(world.readers, [0], "the first node leads");
    let (own, successors) = (1_000_000u64, 2_000_000u64);
    let group = world.replicas[0].group.as_mut().expect("it is up");
    group.building().extend_from_slice(&own.to_le_bytes());
    group.replicate(own, true, false);
    world.pass(0);
    (0..20).for_each(|_| world.sync_disk(0));
    // Nobody else has heard of the write.
    world.network.clear();
    let group = world.replicas[0].group.as_ref().expect("it is up");
    let (raft, store) = (&group.node.raft, group.node.store());
    let (to, term, last) = (raft.id, raft.term, raft.raft_log.last_index());
    let before = store.term_at(last - 1).expect("it is in the log");
    let (second, fifth) = (to_raft(world.replicas[1].id), to_raft(world.replicas[4].id));
    let lacks = Message {
        msg_type: MessageType::MsgAppendResponse as i32,
        from: fifth,
        to,
        term,
        index: last,
        reject: true,
        reject_hint: last - 1,
        log_term: before,
        ..Default::default()
    };
    let append = Message {
        msg_type: MessageType::MsgAppend as i32,
        from: second,
        to,
        term: term + 1,
        index: last - 1,
        log_term: before,
        entries: vec![Entry { index: last, term: term + 1, ..Default::default() }],
        ..Default::default()
    };
    let payload = Payload { bytes: Bytes::copy_from_slice(&successors.to_le_bytes()), sync: true };
    let group = world.replicas[0].group.as_mut().expect("it is up");
    for (message, payloads) in [(lacks, Vec::new()), (append, vec![payload])] {
        group.step(PeerMessage { group: ID, hibernates: false, progress: 0, message, payloads });
    }
    world.pass(0);
    (0..20).for_each(|_| world.sync_disk(0));
    assert_eq!(last_index(&world, 0), last);
    let group = world.replicas[0].group.as_ref().expect("it is up");
    assert_eq!(group.node.store().term_at(last), Some(term + 1), "its entry was replaced");
    let carried: Vec<_> = world.network.iter().flat_map(|(_, message)| &message.payloads).collect();
    assert!(!carried.iter().any(|payload| payload.bytes[..] == successors.to_le_bytes()), "{carried:?}");
}
