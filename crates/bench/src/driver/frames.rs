//! Streams of frames that say in their first bytes how long they are: the protocols of Pegasus, RethinkDB and etcd.

/// As much of a frame as is kept; what tells which request it answers, and whether that failed, comes before.
const KEPT_BYTES: usize = 192;

#[derive(Default)]
pub(super) struct Frames {
    /// The beginning of a frame that has not ended yet.
    beginning: Vec<u8>,
    /// Bytes of it that have come.
    come: usize,
}

impl Frames {
    /// Tells the beginning of each frame that ends in these bytes. `length` tells a whole frame's from its head.
    pub(super) fn cut<const HEAD: usize>(
        &mut self,
        mut bytes: &[u8],
        length: impl Fn(&[u8; HEAD]) -> usize,
        mut tell: impl FnMut(&[u8]),
    ) {
        while !bytes.is_empty() {
            let whole = self.beginning.first_chunk().map_or(HEAD, |head| length(head).max(HEAD));
            let (taken, rest) = bytes.split_at(bytes.len().min(whole - self.come));
            bytes = rest;
            self.come += taken.len();
            let kept = taken.len().min(KEPT_BYTES - self.beginning.len());
            self.beginning.extend_from_slice(&taken[..kept]);
            if self.beginning.first_chunk().is_some_and(|head| self.come >= length(head)) {
                tell(&self.beginning);
                self.beginning.clear();
                self.come = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_told_however_they_are_cut() {
        let stream = [&[2, 7][..], &[1], &[200], &[9; 199], &[0], &[3, 4, 5]].concat();
        for cut in 0..=stream.len() {
            let mut told = Vec::new();
            let mut frames = Frames::default();
            for part in [&stream[..cut], &stream[cut..]] {
                frames.cut(part, |[length]: &[u8; 1]| usize::from(*length), |frame| told.push(frame.to_vec()));
            }
            let long = [&[200][..], &[9; KEPT_BYTES - 1]].concat();
            assert_eq!(told, [vec![2, 7], vec![1], long, vec![0], vec![3, 4, 5]], "cut at {cut}");
        }
    }
}
