//! From values to places on an axis, and the values that are written there.

/// Round values from 0 to the first one that is not below `top`, at most `most` of them after 0.
pub(super) fn ticks(top: f64, most: usize) -> Vec<f64> {
    let top = if top > 0.0 { top } else { 1.0 };
    let power = 10_f64.powf((top / most as f64).log10().floor());
    // 1e-9: a quotient that is whole but for rounding is whole.
    let count = |step: f64| (top / step - 1e-9).ceil().max(1.0) as usize;
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * power);
    let step = steps.into_iter().find(|step| count(*step) <= most).unwrap_or(20.0 * power);
    (0..=count(step)).map(|number| number as f64 * step).collect()
}

/// How many digits behind the point tell ticks apart.
pub(super) fn decimals(ticks: &[f64]) -> usize {
    let step = ticks.get(1).copied().unwrap_or(1.0);
    let is_whole = |decimals: &usize| {
        let shifted = step * 10_f64.powi(*decimals as i32);
        (shifted - shifted.round()).abs() < 1e-6 * shifted
    };
    (0..9).find(is_whole).unwrap_or(9)
}

/// A part of an axis, in values and in places of the drawing.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    /// The values at both ends.
    pub(super) values: (f64, f64),
    /// Where the ends are.
    pub(super) places: (f64, f64),
}

impl Scale {
    pub(super) fn at(&self, value: f64) -> f64 {
        let ((low, high), (from, to)) = (self.values, self.places);
        from + (value - low) / (high - low) * (to - from)
    }
}

/// Which of the values that ascend can be written on an axis without touching each other: the last one, and from the first one on
/// all that have room. `width` is that of the text of a value.
pub(super) fn with_room(values: &[f64], scale: &Scale, width: impl Fn(f64) -> f64) -> Vec<f64> {
    const GAP: f64 = 8.0;
    let Some(last) = values.last() else { return Vec::new() };
    let (begin, end) =
        (|value: &f64| scale.at(*value) - width(*value) / 2.0, |value: &f64| scale.at(*value) + width(*value) / 2.0);
    let mut kept: Vec<f64> = Vec::new();
    for value in &values[..values.len() - 1] {
        let is_free = kept.last().is_none_or(|before| begin(value) >= end(before) + GAP);
        if is_free && end(value) + GAP <= begin(last) {
            kept.push(*value);
        }
    }
    kept.push(*last);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_few_and_hold_the_top() {
        assert_eq!(ticks(52_503.0, 5), [0.0, 20_000.0, 40_000.0, 60_000.0]);
        assert_eq!(ticks(100.0, 5), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(0.0, 5), ticks(1.0, 5));
        for top in [1e-3, 0.07, 0.3, 0.9, 1.0, 1.01, 7.3, 59.0, 999.0, 1_001.0, 431_756.0, 1_194_394.0] {
            for most in 2..9 {
                let ticks = ticks(top, most);
                assert!(*ticks.last().unwrap() >= top && ticks.len() <= most + 1, "{top} with {most}: {ticks:?}");
                assert!(ticks.windows(2).all(|pair| pair[0] < pair[1]));
            }
        }
    }

    #[test]
    fn ticks_have_as_many_digits_as_they_need() {
        assert_eq!([0.25, 0.5, 2.5, 1.0, 20_000.0].map(|step| decimals(&[0.0, step])), [2, 1, 1, 0, 0]);
    }

    #[test]
    fn a_scale_is_linear_in_either_direction() {
        let scale = Scale { values: (0.0, 100.0), places: (300.0, 20.0) };
        assert_eq!([0.0, 50.0, 100.0].map(|value| scale.at(value)), [300.0, 160.0, 20.0]);
    }

    #[test]
    fn values_without_room_are_left_out() {
        let scale = Scale { values: (0.0, 450.0), places: (0.0, 300.0) };
        let values = [15.0, 21.0, 30.0, 45.0, 90.0, 440.0, 450.0];
        let kept = with_room(&values, &scale, |_| 20.0);
        assert_eq!(kept, [15.0, 90.0, 450.0]);
        let places: Vec<f64> = kept.iter().map(|value| scale.at(*value)).collect();
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= 28.0));
        assert!(with_room(&[], &scale, |_| 20.0).is_empty());
    }
}
