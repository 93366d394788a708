#![no_main]
//! Requests of the Redis protocol. Whatever comes, parsing must end, stay within the buffer, and not depend on where
//! the bytes were cut.

use libfuzzer_sys::fuzz_target;
use tessera_redis::resp::{Frame, ParseLimits, Parsed, parse};

const LIMITS: ParseLimits = ParseLimits { bulk_bytes: 1 << 16, arguments: 64, frame_bytes: 1 << 17 };

fuzz_target!(|bytes: &[u8]| {
    let (mut at, mut frame, mut cut_frame) = (0, Frame::default(), Frame::default());
    while at < bytes.len() {
        let rest = &bytes[at..];
        match parse(rest, &LIMITS, &mut frame) {
            Ok(Parsed::Frame(length)) => {
                assert!(length > 0 && length <= rest.len());
                assert!(frame.arguments.iter().all(|range| range.end <= length));
                // One byte less must be incomplete, never something else; an empty inline line is the exception that
                // a single byte makes.
                if length > 2 {
                    match parse(&rest[..length - 1], &LIMITS, &mut cut_frame) {
                        Ok(Parsed::Incomplete(needed)) => assert!(needed > 0),
                        other => panic!("cut frame: {other:?}"),
                    }
                    // When the last byte has come, the frame is what it would have been in one piece.
                    assert_eq!(parse(rest, &LIMITS, &mut cut_frame), Ok(Parsed::Frame(length)));
                    assert_eq!(cut_frame, frame);
                }
                at += length;
            }
            Ok(Parsed::Incomplete(needed)) => {
                assert!(needed > 0);
                break;
            }
            Err(_) => break,
        }
    }
});
