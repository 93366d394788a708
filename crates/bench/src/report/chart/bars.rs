//! Bars in groups, each with its value above it.

use super::frame::Frame;
use super::labels::{LINE, width, wrap};
use super::{Chart, Width, text};
use crate::report::markup::escape;
use crate::report::number::{exact, short};
use std::fmt::Write;

/// The share of a group's width that its bars take.
const SHARE: f64 = 0.84;
const WIDEST: f64 = 90.0;
/// Between bars of a group.
const GAP: f64 = 2.0;
/// Of the key: a sample of the colour, and what is between entries.
const SAMPLE: f64 = 18.0;
const BETWEEN: f64 = 20.0;

/// What values that stand upright need above the highest bar.
const RAISED: f64 = 30.0;

/// How the values of a chart are written above its bars: all alike, so that none is over another.
#[derive(Clone, Copy)]
enum Form {
    Whole,
    Short,
    /// Short, and turned by a quarter.
    Upright,
}

/// A bar in each group.
pub(crate) struct Bars {
    pub(crate) label: String,
    pub(crate) color: usize,
    pub(crate) values: Vec<Option<f64>>,
}

pub(super) fn draw(chart: &Chart, groups: &[String], series: &[Bars], size: Width) -> String {
    let mut out = String::new();
    let series: Vec<&Bars> = series.iter().filter(|bars| bars.values.iter().any(Option::is_some)).collect();
    let top = series.iter().flat_map(|bars| &bars.values).flatten().copied().fold(0.0, f64::max);
    let rows = key(&series, size, &mut out);
    let raised = if size == Width::Narrow { RAISED } else { 0.0 };
    let frame = Frame::draw(chart, size, top, rows * LINE + 8.0 + raised, 0.0, &mut out);
    let slot = (frame.right - frame.left) / groups.len().max(1) as f64;
    let bar = f64::min(slot * SHARE / series.len().max(1) as f64, WIDEST);
    let values = || series.iter().flat_map(|bars| &bars.values).flatten();
    let form = if values().all(|value| width(&exact(*value)) <= bar) {
        Form::Whole
    } else if values().all(|value| width(&short(*value)) <= bar) {
        Form::Short
    } else {
        Form::Upright
    };
    for (group, name) in groups.iter().enumerate() {
        let middle = frame.left + (group as f64 + 0.5) * slot;
        // What is too long for a group goes on in its second line, which is beside the axis' name.
        match wrap(name, slot).as_slice() {
            [first, second, ..] if size == Width::Narrow => {
                text(&mut out, "tick middle", (middle, frame.bottom + LINE), first);
                text(&mut out, "tick middle", (middle, frame.bottom + 1.9 * LINE), second);
            }
            _ => frame.mark_x(middle, name, &mut out),
        }
        for (number, bars) in series.iter().enumerate() {
            let Some(value) = bars.values.get(group).copied().flatten() else { continue };
            let left = middle + (number as f64 - series.len() as f64 / 2.0) * bar;
            let (place, name) = (frame.y.at(value), format!("{}, {name}", bars.label));
            one(chart, bars.color, &name, (value, form), (left, place, bar, frame.bottom), &mut out);
        }
    }
    out
}

fn one(
    chart: &Chart,
    color: usize,
    name: &str,
    (value, form): (f64, Form),
    place: (f64, f64, f64, f64),
    out: &mut String,
) {
    let (left, top, bar, bottom) = place;
    let unit = chart.y.rsplit(", ").next().unwrap_or(chart.y);
    let title = escape(&format!("{name}: {} {unit}", exact(value)));
    write!(
        out,
        "<g class=\"point s{color}\"><title>{title}</title><rect class=\"bar\" x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" \
         height=\"{:.1}\"/></g>",
        left + GAP / 2.0,
        bar - GAP,
        // Something is seen of the smallest value.
        f64::max(bottom - top, 1.0)
    )
    .expect("a string takes all text");
    let middle = left + bar / 2.0;
    match form {
        Form::Whole => text(out, "value middle", (middle, top - 4.0), &exact(value)),
        Form::Short => text(out, "value middle", (middle, top - 4.0), &short(value)),
        Form::Upright => {
            let (x, y) = (middle + 4.0, top - 4.0);
            write!(out, "<g transform=\"rotate(-90 {x:.1} {y:.1})\">").expect("a string takes all text");
            text(out, "value", (x, y), &short(value));
            *out += "</g>";
        }
    }
}

/// Which colour is what, above the rectangle. Returns how many rows it takes.
fn key(series: &[&Bars], size: Width, out: &mut String) -> f64 {
    let (mut x, mut row) = (0.0, 1.0);
    for bars in series {
        let wide = SAMPLE + width(&bars.label);
        if x > 0.0 && x + wide > size.size().0 {
            (x, row) = (0.0, row + 1.0);
        }
        let y = 15.0 + LINE * row;
        write!(
            out,
            "<g class=\"s{}\"><rect class=\"sample\" x=\"{x:.1}\" y=\"{:.1}\" width=\"12\" height=\"11\"/></g>",
            bars.color,
            y - 10.0
        )
        .expect("a string takes all text");
        text(out, "key", (x + SAMPLE, y), &bars.label);
        x += wide + BETWEEN;
    }
    row
}
