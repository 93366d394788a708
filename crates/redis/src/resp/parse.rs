//! Requests: arrays of bulk strings, or a line of words ("inline").
//!
//! Parsing is in place: a frame is a list of ranges of the read buffer. A frame that is not complete yet costs nothing
//! but the bytes received, and says how many more it surely needs; lengths are checked when they are announced, not
//! when their bytes have arrived. When more has come, parsing goes on where it had stopped: a command of a million arguments
//! that arrives in a thousand pieces is not parsed a thousand times.

use std::ops::Range;

/// What a client may send.
#[derive(Clone, Copy, Debug)]
pub struct ParseLimits {
    /// Longest bulk string, bytes.
    pub bulk_bytes: usize,
    /// Most arguments of a command.
    pub arguments: usize,
    /// Longest command as a whole, bytes, with [`ARGUMENT_OVERHEAD`] for each argument.
    pub frame_bytes: usize,
}

/// What an argument takes beside its bytes. It counts towards the length of a command, so that many small ones do not take many
/// times what they seem to.
pub const ARGUMENT_OVERHEAD: usize = 48;

/// Longest inline command, and longest line that announces a length; Redis' own limit.
const LINE_BYTES: usize = 64 << 10;

/// Digits of a number that is read without further checks: it cannot overflow.
const SHORT_NUMBER: usize = 10;

/// The arguments of one command, as ranges of the buffer it was parsed from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// The range of each argument, the command's name first.
    pub arguments: Vec<Range<usize>>,
    /// Arguments of an inline command that had quotes or escapes, which are not in the buffer as they are meant.
    pub unquoted: Option<Vec<Vec<u8>>>,
    /// Of an array that was not whole yet when it was last looked at: what of it is still to be parsed.
    unparsed: Option<Unparsed>,
}

/// The rest of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unparsed {
    /// Where it begins.
    at: usize,
    /// How many arguments it has.
    arguments: usize,
}

/// Arguments for which a frame that nothing is in may keep room.
const KEPT_ARGUMENTS: usize = 1 << 10;

impl Frame {
    /// What the frame takes of the heap: a command of many empty arguments takes more here than it has bytes.
    pub fn held_bytes(&self) -> usize {
        self.arguments.capacity() * size_of::<Range<usize>>()
    }

    /// The words of an inline command; `buffer` is what [`arguments`](Self::arguments) are ranges of.
    pub fn words<'a>(&'a self, buffer: &'a [u8]) -> Vec<&'a [u8]> {
        match &self.unquoted {
            Some(words) => words.iter().map(Vec::as_slice).collect(),
            None => self.arguments.iter().map(|range| &buffer[range.clone()]).collect(),
        }
    }

    /// Lets go of the room that an uncommonly long command took, unless a part of one is in it.
    pub fn shrink(&mut self) {
        if self.unparsed.is_none() && self.arguments.capacity() > KEPT_ARGUMENTS {
            self.arguments = Vec::new();
        }
    }
}

/// What the buffer begins with.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A whole frame of that many bytes, left in the frame given. It may have no arguments: an empty line.
    Frame(usize),
    /// At least so many more bytes are needed.
    Incomplete(usize),
}

/// What ends the connection. The texts are Redis'.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The number of arguments is no number, or out of range.
    #[error("Protocol error: invalid multibulk length")]
    MultibulkLength,
    /// The length of an argument is no number, or out of range.
    #[error("Protocol error: invalid bulk length")]
    BulkLength,
    /// An argument does not begin with `$`.
    #[error("Protocol error: expected '$', got '{0}'")]
    ExpectedBulk(char),
    /// The line with the number of arguments is too long.
    #[error("Protocol error: too big mbulk count string")]
    CountLine,
    /// The line with the length of an argument is too long.
    #[error("Protocol error: too big bulk count string")]
    LengthLine,
    /// An inline command is too long.
    #[error("Protocol error: too big inline request")]
    InlineLength,
    /// An inline command opens a quote and does not close it.
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// An argument of so many bytes is above the limit, the second number.
    #[error("Protocol error: a bulk string of {0} bytes is longer than the limit of {1}")]
    BulkTooLong(u64, usize),
    /// So many arguments are more than the limit, the second number.
    #[error("Protocol error: {0} arguments are more than the limit of {1}")]
    TooManyArguments(u64, usize),
    /// All arguments together are above the limit, which is the value in bytes.
    #[error(
        "Protocol error: the command is longer than the limit of {0} bytes, of which each argument takes {ARGUMENT_OVERHEAD} more"
    )]
    FrameTooLong(usize),
}

/// Parses one command at the start of `buffer` into `frame`. If it is not whole, the next call with the same frame goes on where
/// this one stopped: `buffer` must then begin with the same bytes, and more.
///
/// # Errors
/// What makes the rest of the connection unreadable.
pub fn parse(buffer: &[u8], limits: &ParseLimits, frame: &mut Frame) -> Result<Parsed, ParseError> {
    if let Some(unparsed) = frame.unparsed {
        return go_on(buffer, limits, frame, unparsed);
    }
    frame.arguments.clear();
    frame.unquoted = None;
    match buffer.first() {
        None => Ok(Parsed::Incomplete(1)),
        Some(b'*') => parse_array(buffer, limits, frame),
        Some(_) => parse_inline(buffer, frame),
    }
}

/// Parses more of an array that was not whole.
#[cold]
fn go_on(buffer: &[u8], limits: &ParseLimits, frame: &mut Frame, unparsed: Unparsed) -> Result<Parsed, ParseError> {
    frame.unparsed = None;
    parse_arguments(buffer, limits, frame, unparsed)
}

fn parse_array(buffer: &[u8], limits: &ParseLimits, frame: &mut Frame) -> Result<Parsed, ParseError> {
    let Some((count, at)) = number_line(buffer, 1) else {
        return incomplete_line(buffer.len(), ParseError::CountLine);
    };
    let count = count.ok_or(ParseError::MultibulkLength)?;
    if count <= 0 {
        return Ok(Parsed::Frame(at));
    }
    let count = count.unsigned_abs();
    let arguments = usize::try_from(count).unwrap_or(usize::MAX);
    if arguments > limits.arguments {
        return Err(ParseError::TooManyArguments(count, limits.arguments));
    }
    parse_arguments(buffer, limits, frame, Unparsed { at, arguments })
}

/// Parses what is left of an array. Two places call it, so the compiler would not inline it by itself: each command costs a
/// tenth less to parse if it is part of the first of them.
#[inline(always)]
fn parse_arguments(
    buffer: &[u8],
    limits: &ParseLimits,
    frame: &mut Frame,
    Unparsed { mut at, arguments }: Unparsed,
) -> Result<Parsed, ParseError> {
    for remaining in (0..arguments).rev() {
        let unparsed = Some(Unparsed { at, arguments: remaining + 1 });
        match buffer.get(at) {
            None => {
                frame.unparsed = unparsed;
                return Ok(Parsed::Incomplete(1));
            }
            Some(b'$') => {}
            Some(&other) => return Err(ParseError::ExpectedBulk(char::from(other))),
        }
        let Some((length, start)) = number_line(buffer, at + 1) else {
            frame.unparsed = unparsed;
            return incomplete_line(buffer.len() - at, ParseError::LengthLine);
        };
        let length = length.and_then(|length| u64::try_from(length).ok()).ok_or(ParseError::BulkLength)?;
        let bulk = usize::try_from(length).unwrap_or(usize::MAX);
        if bulk > limits.bulk_bytes {
            return Err(ParseError::BulkTooLong(length, limits.bulk_bytes));
        }
        let end = start + bulk;
        if end + frame.arguments.len() * ARGUMENT_OVERHEAD > limits.frame_bytes {
            return Err(ParseError::FrameTooLong(limits.frame_bytes));
        }
        if end + 2 > buffer.len() {
            frame.unparsed = unparsed;
            return Ok(Parsed::Incomplete(end + 2 - buffer.len() + remaining));
        }
        frame.arguments.push(start..end);
        at = end + 2;
    }
    Ok(Parsed::Frame(at))
}

/// The bytes from `from` to the next CR LF, and where the line after it begins.
fn line(buffer: &[u8], from: usize) -> Option<(&[u8], usize)> {
    let rest = buffer.get(from..)?;
    let end = memchr::memchr(b'\r', &rest[..rest.len().min(LINE_BYTES)])?;
    (end + 1 < rest.len()).then(|| (&rest[..end], from + end + 2))
}

fn incomplete_line(seen: usize, error: ParseError) -> Result<Parsed, ParseError> {
    if seen > LINE_BYTES { Err(error) } else { Ok(Parsed::Incomplete(1)) }
}

/// The number in the line from `from` on, `None` if the line is no number, and where the next line begins; `None` if the line is not
/// whole. A command has one such line for each argument, and a call for each would cost as much as reading it.
#[inline(always)]
fn number_line(buffer: &[u8], from: usize) -> Option<(Option<i64>, usize)> {
    match short_number_line(buffer, from) {
        Some((number, next)) => Some((Some(number), next)),
        None => any_number_line(buffer, from),
    }
}

#[cold]
fn any_number_line(buffer: &[u8], from: usize) -> Option<(Option<i64>, usize)> {
    let (line, next) = line(buffer, from)?;
    Some((crate::number::parse_integer(line), next))
}

/// Likewise for a line of at most [`SHORT_NUMBER`] digits that do not begin with a zero, which nearly all are: the line is read once,
/// and its end is not searched for beforehand. `None` says nothing about the line.
#[inline(always)]
fn short_number_line(buffer: &[u8], from: usize) -> Option<(i64, usize)> {
    let line = buffer.get(from..)?;
    let mut number = match line.first()? {
        digit @ b'1'..=b'9' => i64::from(digit - b'0'),
        _ => return None,
    };
    for at in 1..=SHORT_NUMBER {
        match line.get(at)? {
            digit @ b'0'..=b'9' => number = number * 10 + i64::from(digit - b'0'),
            b'\r' if at + 1 < line.len() => return Some((number, from + at + 2)),
            _ => return None,
        }
    }
    None
}

fn parse_inline(buffer: &[u8], frame: &mut Frame) -> Result<Parsed, ParseError> {
    let Some(newline) = memchr::memchr(b'\n', &buffer[..buffer.len().min(LINE_BYTES)]) else {
        return incomplete_line(buffer.len(), ParseError::InlineLength);
    };
    let line = buffer[..newline].strip_suffix(b"\r").unwrap_or(&buffer[..newline]);
    if line.iter().any(|byte| matches!(byte, b'"' | b'\'' | b'\\')) {
        frame.unquoted = Some(unquote(line).ok_or(ParseError::UnbalancedQuotes)?);
        return Ok(Parsed::Frame(newline + 1));
    }
    let mut start = None;
    for (at, byte) in line.iter().enumerate() {
        match (byte.is_ascii_whitespace(), start) {
            (true, Some(begin)) => {
                frame.arguments.push(begin..at);
                start = None;
            }
            (false, None) => start = Some(at),
            _ => {}
        }
    }
    if let Some(begin) = start {
        frame.arguments.push(begin..line.len());
    }
    Ok(Parsed::Frame(newline + 1))
}

/// Words with quotes as redis-cli writes them: "..." with \n \r \t \b \a \xHH and escaped quotes, '...' with \' only.
fn unquote(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut at = 0;
    loop {
        while line.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        let Some(&first) = line.get(at) else { return Some(words) };
        let mut word = Vec::new();
        let quote = matches!(first, b'"' | b'\'').then_some(first);
        if quote.is_none() {
            while let Some(&byte) = line.get(at).filter(|byte| !byte.is_ascii_whitespace()) {
                // A quote may open inside a word; redis treats what follows as quoted.
                if matches!(byte, b'"' | b'\'') {
                    at = unquote_into(line, at, &mut word)?;
                    break;
                }
                word.push(byte);
                at += 1;
            }
        } else {
            at = unquote_into(line, at, &mut word)?;
        }
        words.push(word);
    }
}

/// Reads the quoted text at `at` and returns the position behind its closing quote, which must end the word.
fn unquote_into(line: &[u8], at: usize, word: &mut Vec<u8>) -> Option<usize> {
    let quote = line[at];
    let mut at = at + 1;
    loop {
        match (*line.get(at)?, line.get(at + 1)) {
            (byte, next) if byte == quote => {
                return next.is_none_or(u8::is_ascii_whitespace).then_some(at + 1);
            }
            (b'\\', Some(b'x')) if quote == b'"' && hex(line.get(at + 2..at + 4)).is_some() => {
                word.push(hex(line.get(at + 2..at + 4))?);
                at += 4;
            }
            (b'\\', Some(&escaped)) if quote == b'"' => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => other,
                });
                at += 2;
            }
            (b'\\', Some(b'\'')) => {
                word.push(b'\'');
                at += 2;
            }
            (byte, _) => {
                word.push(byte);
                at += 1;
            }
        }
    }
}

fn hex(digits: Option<&[u8]>) -> Option<u8> {
    let text = std::str::from_utf8(digits?).ok()?;
    if text.bytes().all(|byte| byte.is_ascii_hexdigit()) { u8::from_str_radix(text, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ParseLimits = ParseLimits { bulk_bytes: 100, arguments: 5, frame_bytes: 300 };

    #[allow(clippy::type_complexity, reason = "what comes of a parse, for tests only")]
    fn words(input: &[u8]) -> Result<(Vec<Vec<u8>>, usize), Result<Parsed, ParseError>> {
        let mut frame = Frame::default();
        match parse(input, &LIMITS, &mut frame) {
            Ok(Parsed::Frame(length)) => {
                let plain = frame.arguments.iter().map(|range| input[range.clone()].to_vec()).collect();
                Ok((frame.unquoted.unwrap_or(plain), length))
            }
            other => Err(other),
        }
    }

    #[test]
    fn arrays_and_lines() {
        assert_eq!(words(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\nrest").unwrap(), (vec![b"GET".to_vec(), b"k".to_vec()], 20));
        assert_eq!(words(b"GET  k\r\n").unwrap(), (vec![b"GET".to_vec(), b"k".to_vec()], 8));
        assert_eq!(words(b"\r\n").unwrap(), (vec![], 2));
        assert_eq!(words(b"*0\r\n").unwrap(), (vec![], 4));
        assert_eq!(words(b"*-1\r\n").unwrap(), (vec![], 5));
        assert_eq!(
            words(b"SET \"a\\x41\\n\" 'it\\'s'\n").unwrap().0,
            [b"SET".to_vec(), b"aA\n".to_vec(), b"it's".to_vec()]
        );
    }

    /// Short numbers are read in another way than others.
    #[test]
    fn lengths_of_every_form_are_read_as_redis_reads_them() {
        for digits in 1..=19 {
            for text in ["1".repeat(digits), "9".repeat(digits.min(18))] {
                for (line, is_number) in [
                    (text.clone(), true),
                    (format!("-{text}"), true),
                    (format!("0{text}"), false),
                    (format!("+{text}"), false),
                    (format!("{text}x"), false),
                    (format!("{text} "), false),
                ] {
                    let number = line.parse().ok().filter(|_| is_number);
                    let buffer = format!("${line}\r\nrest");
                    assert_eq!(number_line(buffer.as_bytes(), 1), Some((number, line.len() + 3)), "{line}");
                    for end in 1..line.len() + 3 {
                        assert_eq!(number_line(&buffer.as_bytes()[..end], 1), None, "{line} cut at {end}");
                    }
                }
            }
        }
        assert_eq!(number_line(b"$0\r\n", 1), Some((Some(0), 4)));
        assert_eq!(number_line(b"$\r\n", 1), Some((None, 3)));
    }

    #[test]
    fn every_cut_of_a_frame_is_incomplete() {
        let whole = b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nvalue\r\n";
        for end in 0..whole.len() {
            assert!(matches!(words(&whole[..end]), Err(Ok(Parsed::Incomplete(_)))), "cut at {end}");
        }
    }

    #[test]
    fn a_frame_that_comes_in_pieces_is_the_same_as_whole() {
        let whole = b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nvalue\r\n";
        let mut expected = Frame::default();
        assert_eq!(parse(whole, &LIMITS, &mut expected), Ok(Parsed::Frame(whole.len())));
        let mut frame = Frame::default();
        for end in 0..whole.len() {
            assert!(matches!(parse(&whole[..end], &LIMITS, &mut frame), Ok(Parsed::Incomplete(_))), "cut at {end}");
        }
        assert_eq!(parse(whole, &LIMITS, &mut frame), Ok(Parsed::Frame(whole.len())));
        assert_eq!(frame, expected);
    }

    /// Parsing anew after each read took time that grew with the square of the number of arguments.
    #[test]
    fn a_million_arguments_that_come_in_pieces_are_parsed_once() {
        const ARGUMENTS: usize = 1 << 20;
        let limits = ParseLimits { bulk_bytes: 100, arguments: ARGUMENTS, frame_bytes: 65 << 20 };
        let mut whole = format!("*{ARGUMENTS}\r\n").into_bytes();
        whole.extend(b"$1\r\nx\r\n".repeat(ARGUMENTS));
        let (mut frame, mut parsed) = (Frame::default(), 0);
        for end in (0..whole.len()).step_by(16 << 10) {
            assert!(matches!(parse(&whole[..end], &limits, &mut frame), Ok(Parsed::Incomplete(_))));
            if end > 100 {
                let unparsed = frame.unparsed.unwrap();
                assert!(end - unparsed.at < 7 && unparsed.arguments < ARGUMENTS);
                assert_eq!(frame.arguments.len() + unparsed.arguments, ARGUMENTS);
                assert!(frame.arguments.len() > parsed);
                parsed = frame.arguments.len();
            }
        }
        assert_eq!(parse(&whole, &limits, &mut frame), Ok(Parsed::Frame(whole.len())));
        assert_eq!(frame.arguments.len(), ARGUMENTS);
        frame.shrink();
        assert_eq!(frame.arguments.capacity(), 0);
        let narrow = ParseLimits { frame_bytes: 10 << 20, ..limits };
        assert_eq!(parse(&whole, &narrow, &mut frame), Err(ParseError::FrameTooLong(10 << 20)));
    }

    #[test]
    fn what_cannot_be_is_refused_when_announced() {
        let error = |input: &[u8]| words(input).unwrap_err().unwrap_err();
        assert_eq!(error(b"*1\r\n$1073741824\r\n"), ParseError::BulkTooLong(1 << 30, 100));
        assert_eq!(error(b"*6\r\n"), ParseError::TooManyArguments(6, 5));
        assert_eq!(error(b"*x\r\n"), ParseError::MultibulkLength);
        assert_eq!(error(b"*1\r\n$-1\r\n"), ParseError::BulkLength);
        assert_eq!(error(b"*1\r\n$007\r\n"), ParseError::BulkLength);
        assert_eq!(error(b"*1\r\n:1\r\n"), ParseError::ExpectedBulk(':'));
        assert_eq!(error(b"GET \"k\n"), ParseError::UnbalancedQuotes);
        assert_eq!(error(&[b'x'; LINE_BYTES + 1]), ParseError::InlineLength);
    }
}
