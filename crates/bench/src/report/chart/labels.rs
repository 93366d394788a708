//! Text of a chart: how wide it is, and where labels are so that none is over another.

/// The size of all text, in units of the drawing.
pub(super) const FONT: f64 = 13.0;
/// The distance from one line of a label to the next.
pub(super) const LINE: f64 = 15.0;
/// What a character is wide on average, as a share of the font's size. Fonts differ, so this is rather too much.
const CHARACTER: f64 = 0.65;

pub(super) fn width(text: &str) -> f64 {
    text.chars().count() as f64 * FONT * CHARACTER
}

/// In lines no wider than that, where there are blanks to break at.
pub(super) fn wrap(text: &str, most: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut().filter(|line| width(line) + width(" ") + width(word) <= most) {
            Some(line) => *line = format!("{line} {word}"),
            None => lines.push(word.to_string()),
        }
    }
    lines
}

/// The centres of labels of some heights, near to where they are wanted, one below the other between two ends, if there is room
/// for all.
pub(super) fn spread(wanted: &[(f64, f64)], ends: (f64, f64)) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|one, other| wanted[*one].0.total_cmp(&wanted[*other].0));
    let mut centres = vec![0.0; wanted.len()];
    // Downwards, as far down as what is above needs; then upwards, as far up as the end needs.
    let mut free = ends.0;
    for label in &order {
        let (centre, height) = wanted[*label];
        centres[*label] = f64::max(centre, free + height / 2.0);
        free = centres[*label] + height / 2.0;
    }
    let mut free = ends.1;
    for label in order.iter().rev() {
        let height = wanted[*label].1;
        centres[*label] = f64::min(centres[*label], free - height / 2.0);
        free = centres[*label] - height / 2.0;
    }
    centres
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng as _, SeedableRng as _};

    #[test]
    fn labels_do_not_overlap_and_stay_inside() {
        let mut random = SmallRng::seed_from_u64(1);
        for _ in 0..1_000 {
            let count = random.random_range(1..8);
            let one =
                |random: &mut SmallRng| (random.random_range(0.0..300.0), LINE * random.random_range(1..3) as f64);
            let wanted: Vec<(f64, f64)> = (0..count).map(|_| one(&mut random)).collect();
            let centres = spread(&wanted, (0.0, 300.0));
            let mut spans: Vec<(f64, f64)> = centres
                .iter()
                .zip(&wanted)
                .map(|(centre, (_, height))| (centre - height / 2.0, centre + height / 2.0))
                .collect();
            spans.sort_by(|one, other| one.0.total_cmp(&other.0));
            assert!(spans[0].0 >= -1e-9 && spans[count - 1].1 <= 300.0 + 1e-9, "{wanted:?}: {spans:?}");
            assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0 + 1e-9), "{wanted:?}: {spans:?}");
        }
    }

    #[test]
    fn labels_with_room_are_where_they_are_wanted() {
        assert_eq!(spread(&[(200.0, 15.0), (40.0, 15.0), (100.0, 30.0)], (0.0, 300.0)), [200.0, 40.0, 100.0]);
        assert_eq!(spread(&[(50.0, 20.0), (50.0, 20.0)], (0.0, 300.0)), [50.0, 70.0]);
    }

    #[test]
    fn long_labels_are_broken_at_blanks() {
        assert_eq!(wrap("redis-server, writes", 100.0), ["redis-server,", "writes"]);
        assert_eq!(wrap("unbreakable-as-it-is", 10.0), ["unbreakable-as-it-is"]);
        assert!(wrap("", 10.0).is_empty());
    }
}
