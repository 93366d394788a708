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

    /// One of the arguments; the first one is the command's name. Cheaper than all of them, where one is enough.
    #[inline]
    pub(super) fn argument(&self, at: usize) -> &[u8] {
        &self.input[self.arguments[at].clone()]
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

    /// The command's name with some of its arguments: from each of these places on, so many.
    pub(super) fn part(&self, places: impl ExactSizeIterator<Item = usize>, count: usize) -> Self {
        let mut arguments = SmallVec::with_capacity(1 + places.len() * count);
        arguments.push(self.arguments[0].clone());
        for at in places {
            arguments.extend(self.arguments[at..at + count].iter().cloned());
        }
        Self { input: self.input.clone(), arguments }
    }

    /// The same arguments under another name.
    pub(super) fn renamed(&self, name: &[u8]) -> Self {
        Self::from_arguments(std::iter::once(name).chain(self.arguments().into_iter().skip(1)))
    }

    /// A copy that does not keep the rest of the pipeline in memory.
    pub(super) fn apart(&self) -> Self {
        Self::from_arguments(self.arguments().into_iter())
    }
}
