//! Patterns as in Redis' KEYS: `*`, `?`, `[abc]`, `[^a-z]`, and `\` before a character to mean itself.

/// Whether the whole of `text` matches `pattern`. Takes time proportional to the product of the lengths at worst, so
/// that a hostile pattern does not hang the server.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut pos) = (0, 0);
    // Where to go on when a match fails: behind the last star, one character further in the text.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if at < pattern.len() && pattern[at] == b'*' {
            retry = Some((at + 1, pos));
            at += 1;
            continue;
        }
        if pos == text.len() {
            return pattern[at..].iter().all(|&byte| byte == b'*');
        }
        let matched = if at < pattern.len() { match_one(&pattern[at..], text[pos]) } else { None };
        match (matched, retry) {
            (Some(length), _) => {
                at += length;
                pos += 1;
            }
            (None, Some((star, from))) => {
                retry = Some((star, from + 1));
                at = star;
                pos = from + 1;
            }
            (None, None) => return false,
        }
    }
}

/// The length of the pattern's first element if it matches `byte`.
fn match_one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'[', rest @ ..] => {
            let (negated, mut at) = if rest.first() == Some(&b'^') { (true, 1) } else { (false, 0) };
            let mut found = false;
            loop {
                match &rest[at.min(rest.len())..] {
                    // A class that is not closed ends with the pattern.
                    [] => break,
                    [b'\\', escaped, ..] => {
                        found |= *escaped == byte;
                        at += 2;
                    }
                    [b']', ..] => {
                        at += 1;
                        break;
                    }
                    [low, b'-', high, ..] => {
                        let (low, high) = (*low.min(high), *low.max(high));
                        found |= (low..=high).contains(&byte);
                        at += 3;
                    }
                    [one, ..] => {
                        found |= *one == byte;
                        at += 1;
                    }
                }
            }
            (found != negated).then_some(1 + at)
        }
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [one, ..] => (*one == byte).then_some(1),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns() {
        let check = |pattern: &str, text: &str| matches(pattern.as_bytes(), text.as_bytes());
        for (pattern, text) in [
            ("*", ""),
            ("h?llo", "hello"),
            ("h*llo", "heeeello"),
            ("h[ae]llo", "hallo"),
            ("h[^e]llo", "hbllo"),
            ("h[b-a]llo", "hallo"),
            ("\\*x", "*x"),
            ("*a*b*", "xxaxxbxx"),
            ("[\\]]", "]"),
        ] {
            assert!(check(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("", "x"), ("h?llo", "hllo"), ("h[^e]llo", "hello"), ("*a*b", "aXbX"), ("\\*x", "yx")] {
            assert!(!check(pattern, text), "{pattern} {text}");
        }
        assert!(!matches(&b"a*".repeat(50), &[b'a'; 10_000][..49]), "and quickly");
    }
}
