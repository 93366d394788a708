//! LCS: the longest common subsequence of two strings.

use super::CommandError;
use super::call::{Call, Outcome, Value};
use super::options::is;
use bytes::Bytes;

/// Cells of the table that is filled in, four bytes each: larger inputs are refused.
const CELLS_LIMIT: usize = 1 << 26;

pub fn lcs(call: &mut Call<'_, '_>) -> Outcome {
    let string = |key: &[u8]| -> Result<Bytes, CommandError> {
        match call.value(key)? {
            Some(Value::Hash) => Err(CommandError::text("ERR The specified keys must contain string values")),
            Some(Value::String(record)) => Ok(record.value),
            None => Ok(Bytes::new()),
        }
    };
    let (a, b) = (string(call.args[1])?, string(call.args[2])?);
    let (mut wants_length, mut wants_ranges, mut with_lengths, mut least) = (false, false, false, 0i64);
    let mut at = 3;
    while at < call.args.len() {
        let word = call.args[at];
        if is(word, "LEN") {
            wants_length = true;
        } else if is(word, "IDX") {
            wants_ranges = true;
        } else if is(word, "WITHMATCHLEN") {
            with_lengths = true;
        } else if is(word, "MINMATCHLEN") && at + 1 < call.args.len() {
            least = call.integer(at + 1)?.max(0);
            at += 1;
        } else {
            return Err(CommandError::SYNTAX);
        }
        at += 1;
    }
    if wants_length && wants_ranges {
        return Err(CommandError::text("ERR If you want both the length and indexes, please just use IDX."));
    }
    if (a.len() + 1).saturating_mul(b.len() + 1) > CELLS_LIMIT {
        return Err(CommandError::text("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"));
    }
    let table = Lengths::of(&a, &b);
    if wants_ranges {
        reply_ranges(call, &table, &a, &b, usize::try_from(least).unwrap_or(usize::MAX), with_lengths);
    } else if wants_length {
        call.reply.count(table.at(a.len(), b.len()) as usize);
    } else {
        call.reply.bulk(&table.subsequence(&a, &b));
    }
    Ok(())
}

/// `at(i, j)` is the length for the first `i` bytes of one string and the first `j` of the other.
struct Lengths {
    cells: Vec<u32>,
    width: usize,
}

impl Lengths {
    fn of(a: &[u8], b: &[u8]) -> Self {
        let width = b.len() + 1;
        let mut cells = vec![0; (a.len() + 1) * width];
        for i in 1..=a.len() {
            for j in 1..=b.len() {
                cells[i * width + j] = if a[i - 1] == b[j - 1] {
                    cells[(i - 1) * width + j - 1] + 1
                } else {
                    cells[(i - 1) * width + j].max(cells[i * width + j - 1])
                };
            }
        }
        Self { cells, width }
    }

    fn at(&self, i: usize, j: usize) -> u32 {
        self.cells[i * self.width + j]
    }

    /// Walks back from the end along one longest subsequence: positions of each byte in both strings, last first.
    fn walk(&self, a: &[u8], b: &[u8]) -> Vec<(usize, usize)> {
        let (mut i, mut j, mut steps) = (a.len(), b.len(), Vec::new());
        while i > 0 && j > 0 {
            if a[i - 1] == b[j - 1] {
                steps.push((i - 1, j - 1));
                (i, j) = (i - 1, j - 1);
            } else if self.at(i - 1, j) > self.at(i, j - 1) {
                i -= 1;
            } else {
                j -= 1;
            }
        }
        steps
    }

    fn subsequence(&self, a: &[u8], b: &[u8]) -> Vec<u8> {
        self.walk(a, b).into_iter().rev().map(|(i, _)| a[i]).collect()
    }
}

fn reply_ranges(call: &mut Call<'_, '_>, table: &Lengths, a: &[u8], b: &[u8], least: usize, with_lengths: bool) {
    // Runs of steps that are adjacent in both strings, last run first, each as its first positions and its length.
    let mut runs: Vec<(usize, usize, usize)> = Vec::new();
    for (i, j) in table.walk(a, b) {
        match runs.last_mut() {
            Some((first_i, first_j, length)) if i + 1 == *first_i && j + 1 == *first_j => {
                (*first_i, *first_j) = (i, j);
                *length += 1;
            }
            _ => runs.push((i, j, 1)),
        }
    }
    runs.retain(|(_, _, length)| *length >= least);
    call.reply.map(2);
    call.reply.bulk(b"matches");
    call.reply.array(runs.len());
    for (i, j, length) in runs {
        call.reply.array(2 + usize::from(with_lengths));
        for first in [i, j] {
            call.reply.array(2);
            call.reply.count(first);
            call.reply.count(first + length - 1);
        }
        if with_lengths {
            call.reply.count(length);
        }
    }
    call.reply.bulk(b"len");
    call.reply.count(table.at(a.len(), b.len()) as usize);
}
