//! Lines with a mark at each point and a label at the end.

use super::frame::Frame;
use super::labels::{FONT, LINE, spread, width, wrap};
use super::scale::{Scale, decimals, ticks, with_room};
use super::{Chart, Width, marker, text};
use crate::report::markup::escape;
use crate::report::number::{exact, grouped};
use std::fmt::Write;

/// Lines of more points have no marks, only values where the pointer is.
const MOST_MARKS: usize = 30;
/// More values than that on the horizontal axis are not those of points, but round.
const MOST_VALUES: usize = 12;
/// Between round values.
const TICK: f64 = 60.0;
/// Between the rectangle and the labels.
const GAP: f64 = 26.0;
/// From an edge of the rectangle to the nearest point.
const INSET: f64 = 14.0;

/// What is measured at some places, ascending.
#[derive(Clone)]
pub(crate) struct Line {
    pub(crate) label: String,
    pub(crate) color: usize,
    pub(crate) points: Vec<(f64, f64)>,
}

pub(super) fn draw(chart: &Chart, lines: &[Line], size: Width) -> String {
    let mut out = String::new();
    let lines: Vec<&Line> = lines.iter().filter(|line| !line.points.is_empty()).collect();
    let all = || lines.iter().flat_map(|line| line.points.iter().copied());
    let labels: Vec<Vec<String>> = lines.iter().map(|line| wrap(&line.label, size.label())).collect();
    let widest = labels.iter().flatten().map(|line| width(line)).fold(0.0, f64::max);
    let top = all().map(|(_, y)| y).fold(0.0, f64::max);
    let frame = Frame::draw(chart, size, top, 0.0, GAP + widest + 4.0, &mut out);
    let mut values: Vec<f64> = all().map(|(x, _)| x).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    let x = horizontal(&mut values, &frame);
    let digits = if values.iter().all(|value| value.fract() == 0.0) { 0 } else { decimals(&values) };
    for value in with_room(&values, &x, |value| width(&grouped(value, digits))) {
        frame.mark_x(x.at(value), &grouped(value, digits), &mut out);
    }
    let at = |(px, py): (f64, f64)| (x.at(px), frame.y.at(py));
    for line in &lines {
        path(line, at, &mut out);
    }
    // Points are drawn over all lines.
    for line in &lines {
        points(chart, line, at, &mut out);
    }
    let ends = lines.iter().map(|line| at(line.points[line.points.len() - 1])).collect::<Vec<_>>();
    let wanted: Vec<(f64, f64)> =
        ends.iter().zip(&labels).map(|((_, y), label)| (*y, LINE * label.len() as f64)).collect();
    let centres = spread(&wanted, (0.0, frame.bottom + LINE));
    for (((line, label), end), centre) in lines.iter().zip(&labels).zip(ends).zip(centres) {
        label_at(line, label, end, (frame.right + GAP, centre), &mut out);
    }
    out
}

/// The horizontal axis, with the values to write on it: those of points, or round ones instead if there are many.
fn horizontal(values: &mut Vec<f64>, frame: &Frame) -> Scale {
    let (first, last) = (values[0], values[values.len() - 1]);
    // An axis that begins with 0 shows proportions; where points are far from 0 and near each other, it would show nothing else.
    let low = if first > last / 2.0 && first < last { first } else { f64::min(first, 0.0) };
    if values.len() > MOST_VALUES {
        *values = ticks(last, ((frame.right - frame.left) / TICK) as usize);
        values.retain(|value| *value >= low && *value <= last);
    }
    let inset = if low == first { INSET } else { 0.0 };
    let high = if last > low { last } else { low + 1.0 };
    Scale { values: (low, high), places: (frame.left + inset, frame.right - INSET) }
}

fn path(line: &Line, at: impl Fn((f64, f64)) -> (f64, f64), out: &mut String) {
    let place = |point: &(f64, f64)| {
        let (x, y) = at(*point);
        format!("{x:.1} {y:.1}")
    };
    let corners = line.points.iter().map(place).collect::<Vec<_>>().join("L");
    write!(out, "<path class=\"line s{}\" d=\"M{corners}\"/>", line.color).expect("a string takes all text");
}

fn points(chart: &Chart, line: &Line, at: impl Fn((f64, f64)) -> (f64, f64), out: &mut String) {
    // The unit of a value, without what is measured.
    let unit = chart.y.rsplit(", ").next().unwrap_or(chart.y);
    for (x, y) in &line.points {
        let place = at((*x, *y));
        let title = format!("{}, {} {}: {} {unit}", line.label, exact(*x), chart.x, exact(*y));
        let mark = match line.points.len() > MOST_MARKS {
            false => format!("<path class=\"mark\" d=\"{}\"/>", marker::path(line.color, place)),
            true => String::new(),
        };
        write!(
            out,
            "<g class=\"point s{}\"><title>{}</title><circle class=\"halo\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"10\"/>{mark}</g>",
            line.color,
            escape(&title),
            place.0,
            place.1
        )
        .expect("a string takes all text");
    }
}

/// A label beside the rectangle, joined to the line's end.
fn label_at(line: &Line, label: &[String], end: (f64, f64), (x, centre): (f64, f64), out: &mut String) {
    write!(
        out,
        "<path class=\"leader s{}\" d=\"M{:.1} {:.1}L{:.1} {centre:.1}\"/>",
        line.color,
        end.0 + 7.0,
        end.1,
        x - 4.0
    )
    .expect("a string takes all text");
    let first = centre - LINE * label.len() as f64 / 2.0 + 0.85 * FONT;
    for (number, part) in label.iter().enumerate() {
        text(out, &format!("label s{}", line.color), (x, first + LINE * number as f64), part);
    }
}
