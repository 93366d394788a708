//! Where a reply ends.

/// Length of the reply at the front of `bytes`; `None` if that is not a whole one.
pub fn reply_length(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    // Elements that are still to come; a reply may hold others.
    let mut left = 1u64;
    while left > 0 {
        left -= 1;
        // Neither of the two bytes that end a line stands within one.
        let line = memchr::memchr(b'\r', &bytes[at..]).filter(|line| bytes.get(at + line + 1) == Some(&b'\n'))?;
        let (kind, text) = bytes[at..at + line].split_first()?;
        at += line + 2;
        let number = || std::str::from_utf8(text).ok()?.parse::<i64>().ok();
        match kind {
            b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => {}
            b'$' | b'=' | b'!' => {
                if let Ok(length) = usize::try_from(number()?) {
                    at = at.checked_add(length)?.checked_add(2).filter(|end| *end <= bytes.len())?;
                }
            }
            b'*' | b'~' | b'>' => left = left.checked_add(u64::try_from(number()?).unwrap_or(0))?,
            b'%' => left = left.checked_add(u64::try_from(number()?).unwrap_or(0).checked_mul(2)?)?,
            _ => return None,
        }
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::{Protocol, Reply};

    #[test]
    fn replies_of_every_kind_are_found_one_after_the_other() {
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            let (mut all, mut ends) = (Vec::new(), Vec::new());
            let write: [fn(&mut Reply<'_>); 7] = [
                |reply| reply.ok(),
                |reply| reply.error("ERR no"),
                |reply| reply.integer(-7),
                |reply| reply.bulk(b"with\r\nline breaks"),
                |reply| reply.null(),
                |reply| {
                    reply.array(2);
                    reply.bulk(b"");
                    reply.array(0);
                },
                |reply| {
                    reply.map(1);
                    reply.bulk(b"key");
                    reply.null();
                },
            ];
            for write in write {
                write(&mut Reply::new(&mut all, protocol));
                ends.push(all.len());
            }
            let mut at = 0;
            for end in ends {
                assert_eq!(reply_length(&all[at..]), Some(end - at));
                for cut in at..end {
                    assert_eq!(reply_length(&all[at..cut]), None, "cut at {cut}");
                }
                at = end;
            }
        }
    }
}
