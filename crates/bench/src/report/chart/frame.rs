//! The rectangle in which marks are drawn, with its axes.

use super::labels::{FONT, width};
use super::scale::{Scale, decimals, ticks};
use super::{Chart, Width, text};
use crate::report::number::grouped;
use std::fmt::Write;

/// What is below the rectangle: values and the axis' name.
const BELOW: f64 = 46.0;
/// The gap between the plot and the values beside it, in units of the drawing.
const GAP: f64 = 8.0;
const TICKS: usize = 5;

/// Where the marks go.
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
    pub(super) y: Scale,
}

impl Frame {
    /// Draws the vertical axis from 0 to a value, with a grid, and the names of both. `above` and `beside` stay free at the top, under
    /// the axis' name, and at the right.
    pub(super) fn draw(chart: &Chart, size: Width, top_value: f64, above: f64, beside: f64, out: &mut String) -> Self {
        let (whole_width, height) = size.size();
        let ticks = ticks(top_value, TICKS);
        let decimals = decimals(&ticks);
        let names: Vec<String> = ticks.iter().map(|tick| grouped(*tick, decimals)).collect();
        let left = names.iter().map(|name| width(name)).fold(0.0, f64::max) + GAP + 2.0;
        let (right, bottom) = (whole_width - beside, height - BELOW);
        let top = 2.0 * FONT + above;
        let y = Scale { values: (0.0, ticks[ticks.len() - 1]), places: (bottom, top) };
        text(out, "axis", (0.0, FONT), chart.y);
        for (tick, name) in ticks.iter().zip(&names) {
            let at = y.at(*tick);
            let class = if *tick == 0.0 { "base" } else { "grid" };
            write!(out, "<path class=\"{class}\" d=\"M{left:.1} {at:.1}H{right:.1}\"/>")
                .expect("a string takes all text");
            text(out, "tick end", (left - GAP, at + 0.35 * FONT), name);
        }
        text(out, "axis end", (right, height - 4.0), chart.x);
        Self { left, right, bottom, y }
    }

    /// Writes something under a place of the horizontal axis.
    pub(super) fn mark_x(&self, at: f64, name: &str, out: &mut String) {
        text(out, "tick middle", (at, self.bottom + 1.5 * FONT), name);
    }
}
