//! A document that becomes Markdown with figures beside it, and one HTML file that needs nothing else.

mod markdown;
mod page;

use crate::report::chart::{Bars, Chart, Line, Marks};
use anyhow::Context;
use std::path::Path;

/// A part of a document.
pub enum Block {
    /// With its level, from 1.
    Heading(usize, String),
    Text(String),
    /// What nobody who reads on should overlook.
    Note(String),
    /// Figures, each with what it says.
    Tiles(Vec<(String, String)>),
    Table {
        /// What follows the last comma is a unit.
        head: Vec<&'static str>,
        /// Those that begin with an empty cell belong to the row above.
        rows: Vec<Vec<String>>,
    },
    Figure {
        /// Of its file.
        name: String,
        title: String,
        chart: Chart,
    },
}

impl Block {
    pub(super) fn text(words: &str) -> Self {
        Self::Text(words.into())
    }

    /// A figure of lines, over what is named first.
    pub(super) fn lines(
        name: impl Into<String>,
        title: impl Into<String>,
        (x, y): (&'static str, &'static str),
        lines: Vec<Line>,
    ) -> Self {
        Self::Figure { name: name.into(), title: title.into(), chart: Chart { x, y, marks: Marks::Lines(lines) } }
    }

    /// A figure of bars, in groups of what is named first.
    pub(super) fn bars(
        name: impl Into<String>,
        title: impl Into<String>,
        (x, y): (&'static str, &'static str),
        groups: Vec<String>,
        series: Vec<Bars>,
    ) -> Self {
        let chart = Chart { x, y, marks: Marks::Bars { groups, series } };
        Self::Figure { name: name.into(), title: title.into(), chart }
    }
}

/// Writes `README.md` with `figures/`, and `index.html`.
///
/// # Errors
/// If a file cannot be written.
pub fn write(blocks: &[Block], directory: &Path) -> anyhow::Result<()> {
    let figures = directory.join("figures");
    std::fs::create_dir_all(&figures).with_context(|| figures.display().to_string())?;
    for block in blocks {
        if let Block::Figure { name, title, chart } = block {
            std::fs::write(figures.join(format!("{name}.svg")), chart.file(title))?;
        }
    }
    std::fs::write(directory.join("README.md"), markdown::of(blocks))?;
    std::fs::write(directory.join("index.html"), page::of(blocks))?;
    Ok(())
}
