#![no_main]
//! The reader of messages between replicas: no more memory than there are bytes, and what is read is written the same. And a
//! group that hears whatever the bytes say: no message ends its process.

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use tessera_consensus::{PeerMessage, expose};

fuzz_target!(|bytes: &[u8]| {
    let mut rest = Bytes::copy_from_slice(bytes);
    while let Some(message) = PeerMessage::decode(&mut rest) {
        let mut encoded = BytesMut::new();
        message.encode(&mut encoded);
        assert_eq!(PeerMessage::decode(&mut encoded.freeze()), Some(message));
    }
    expose(bytes);
});
