use crate::resp::Frame;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// A command's arguments, as ranges of bytes that it shares with the other commands of its pipeline.
#[derive(Clone)]
pub(crate) struct OwnedFrame {
    input: Arc<Vec<u8>>,
    arguments: SmallVec<[Range<usize>; 4]>,
}

/// Arguments of a command; most have few.
pub(super) type Arguments<'a> = SmallVec<[&'a [u8]; 6]>;

impl OwnedFrame {
    /// The command that was parsed to `frame`.
    pub(super) fn take(input: &Arc<Vec<u8>>, frame: &mut Frame) -> Self {
        match frame.unquoted.take() {
            Some(words) => Self::from_arguments(words.iter().map(Vec::as_slice)),
            None => Self { input: input.clone(), arguments: frame.arguments.drain(..).collect() },
        }
    }

    pub(super) fn from_arguments<'a>(arguments: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut bytes = Vec::new();
        let arguments = arguments
            .map(|argument| {
                bytes.extend_from_slice(argument);
                bytes.len() - argument.len()..bytes.len()
            })
            .collect();
        Self { input: Arc::new(bytes), arguments }
    }

    pub(super) fn arguments(&self) -> Arguments<'_> {
        self.arguments.iter().map(|range| &self.input[range.clone()]).collect()
    }

    /// How many arguments there are, with the command's name.
    pub(super) fn len(&self) -> usize {
        self.arguments.len()
    }

    /// Bytes of all arguments.
    pub(super) fn bytes(&self) -> usize {
        self.arguments.iter().map(Range::len).sum()
    }

    /// The command with some of its arguments.
    pub(super) fn part(&self, arguments: impl Iterator<Item = usize>) -> Self {
        Self { input: self.input.clone(), arguments: arguments.map(|at| self.arguments[at].clone()).collect() }
    }

    /// A copy that does not keep the rest of the pipeline in memory.
    pub(super) fn apart(&self) -> Self {
        Self::from_arguments(self.arguments().into_iter())
    }
}
