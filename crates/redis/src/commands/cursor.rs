//! Cursors of SCAN and HSCAN.

use super::CommandError;

/// A cursor as SCAN and HSCAN take it: what C's `strtoul` reads as a whole, which includes a sign and nothing at all.
pub fn parse_cursor(text: &[u8]) -> Result<u64, CommandError> {
    const INVALID: CommandError = CommandError::text("ERR invalid cursor");
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Ok(0);
    }
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(INVALID);
    }
    let number: u64 = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).ok_or(INVALID)?;
    Ok(if negative { number.wrapping_neg() } else { number })
}

/// The names of the first and of the last field of a hash.
pub struct Ends<'a> {
    pub first: &'a [u8],
    pub last: &'a [u8],
}

const NAME_BYTES: usize = 7;
/// Bits of a cursor for the bytes of a name, counted from 1, so that no cursor is 0.
const NAME_BITS: u32 = 57;
/// Leaves a cursor's sign bit alone, for clients that have no unsigned numbers.
const MOST_SHARED: usize = (1 << (63 - NAME_BITS)) - 1;

impl Ends<'_> {
    /// How many of their first bytes all names share, as far as cursors know.
    fn shared(&self) -> usize {
        let pairs = self.first.iter().zip(self.last).take(MOST_SHARED);
        pairs.take_while(|(first, last)| first == last).count()
    }

    /// What a cursor knows of a field: how many bytes all names share, and those that follow as a number. It grows with the field.
    pub fn cursor_of(&self, field: &[u8]) -> u64 {
        let shared = self.shared();
        let mut bytes = [0; 8];
        let own = field[shared..].iter().take(NAME_BYTES);
        bytes[1..].iter_mut().zip(own).for_each(|(to, from)| *to = *from);
        (shared as u64) << NAME_BITS | (u64::from_be_bytes(bytes) + 1)
    }

    /// The least field with a cursor. That is the first of all if names do not share any more what they shared then: other
    /// fields have come, and which ones were there is not known.
    pub fn place_of(&self, cursor: u64) -> Vec<u8> {
        let shared = (cursor >> NAME_BITS) as usize;
        let prefix = self.first.get(..shared).filter(|prefix| self.last.starts_with(prefix));
        let Some(prefix) = prefix else { return Vec::new() };
        let bytes = (cursor & ((1 << NAME_BITS) - 1)).saturating_sub(1).to_be_bytes();
        let own = &bytes[1..];
        let length = own.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        [prefix, &own[..length]].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn name() -> impl Strategy<Value = Vec<u8>> {
        let byte = || prop_oneof![Just(0), Just(1), Just(b'a'), Just(255)];
        prop_oneof![
            prop::collection::vec(byte(), 0..12),
            prop::collection::vec(byte(), 0..12).prop_map(|rest| [b"user:", &rest[..]].concat()),
            prop::collection::vec(byte(), 0..12).prop_map(|rest| [&[b'x'; 70], &rest[..]].concat()),
        ]
    }

    proptest! {
        #[test]
        fn cursors_follow_the_order_of_fields(fields in prop::collection::btree_set(name(), 1..30)) {
            let ends = Ends { first: fields.first().unwrap(), last: fields.last().unwrap() };
            let mut last = 0;
            for field in &fields {
                let cursor = ends.cursor_of(field);
                prop_assert!(last <= cursor && 0 < cursor && cursor <= i64::MAX as u64);
                let place = ends.place_of(cursor);
                prop_assert!(place <= *field);
                prop_assert_eq!(ends.cursor_of(&place), cursor);
                last = cursor;
            }
        }

        /// Whatever else comes and goes between two pages.
        #[test]
        fn fields_that_stay_are_not_missed(
            stay in prop::collection::btree_set(name(), 1..30),
            others in prop::collection::vec(prop::collection::btree_set(name(), 0..3), 200),
        ) {
            let (mut seen, mut cursor) = (BTreeSet::new(), 0);
            for others in &others {
                let fields: BTreeSet<_> = stay.union(others).cloned().collect();
                let ends = Ends { first: fields.first().unwrap(), last: fields.last().unwrap() };
                let from = if cursor == 0 { Vec::new() } else { ends.place_of(cursor) };
                cursor = 0;
                let mut left = fields.range(from..);
                let Some(first) = left.next() else { break };
                seen.insert(first.clone());
                for field in left {
                    if ends.cursor_of(field) > ends.cursor_of(first) {
                        cursor = ends.cursor_of(field);
                        break;
                    }
                    seen.insert(field.clone());
                }
                if cursor == 0 {
                    break;
                }
            }
            prop_assert!(cursor != 0 || stay.is_subset(&seen), "missed {:?}", stay.difference(&seen));
        }

        #[test]
        fn any_number_is_a_cursor(cursor in 1u64.., fields in prop::collection::btree_set(name(), 1..5)) {
            let ends = Ends { first: fields.first().unwrap(), last: fields.last().unwrap() };
            ends.place_of(cursor);
        }
    }
}
