//! The shape of a line's points: with the colour, it tells lines apart, also for those who do not see the colours.

use super::COLORS;

/// About half of what a marker is wide.
const HALF: f64 = 4.5;

/// A closed path around a place.
pub(super) fn path(color: usize, (x, y): (f64, f64)) -> String {
    let polygon = |corners: &[(f64, f64)]| {
        let corner = |(dx, dy): &(f64, f64)| format!("{:.1} {:.1}", x + HALF * dx, y + HALF * dy);
        format!("M{}Z", corners.iter().map(corner).collect::<Vec<_>>().join("L"))
    };
    match color % COLORS {
        2 => polygon(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
        3 => polygon(&[(0.0, -1.2), (1.15, 0.8), (-1.15, 0.8)]),
        4 => polygon(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]),
        5 => polygon(&[(0.0, 1.2), (1.15, -0.8), (-1.15, -0.8)]),
        6 => polygon(&[(-1.0, -0.5), (0.0, -1.2), (1.0, -0.5), (1.0, 0.5), (0.0, 1.2), (-1.0, 0.5)]),
        _ => format!(
            "M{:.1} {y:.1}a{HALF} {HALF} 0 1 0 {two} 0a{HALF} {HALF} 0 1 0 -{two} 0Z",
            x - HALF,
            two = 2.0 * HALF
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn shapes_tell_colours_apart() {
        // What was published has a circle too, a hollow one.
        let shapes: BTreeSet<String> = (1..COLORS).map(|color| path(color, (0.0, 0.0))).collect();
        assert_eq!(shapes.len(), COLORS - 1);
    }
}
