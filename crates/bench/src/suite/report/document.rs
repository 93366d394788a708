//! A document that becomes Markdown with figures beside it, and one HTML file that needs nothing else.

use crate::report::page::{Line, chart, escape};
use anyhow::Context;
use std::fmt::Write;
use std::path::Path;

const STYLE: &str = ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:1300px;margin:2em auto;\
    padding:0 1em}table{border-collapse:collapse;display:block;overflow-x:auto;font-variant-numeric:tabular-nums;margin:1em 0}\
    td,th{padding:.15em .6em;border-bottom:1px solid #8884;text-align:right;white-space:nowrap}td:first-child,th:first-child\
    {text-align:left}svg{width:100%;max-width:760px;height:auto}code{overflow-wrap:anywhere}";

pub enum Block {
    /// With its level, from 1.
    Heading(usize, String),
    Text(String),
    Table {
        head: Vec<&'static str>,
        rows: Vec<Vec<String>>,
    },
    Figure {
        /// Of its file.
        name: String,
        title: String,
        x: &'static str,
        y: &'static str,
        lines: Vec<Line>,
    },
}

/// Writes `README.md` with `figures/`, and `index.html`.
///
/// # Errors
/// If a chart cannot be drawn, or a file not be written.
pub fn write(blocks: &[Block], directory: &Path) -> anyhow::Result<()> {
    let figures = directory.join("figures");
    std::fs::create_dir_all(&figures).with_context(|| figures.display().to_string())?;
    let mut markdown = String::new();
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>tessera bench suite</title><style>{STYLE}</style>"
    );
    for block in blocks {
        match block {
            Block::Heading(level, text) => {
                writeln!(markdown, "{} {text}\n", "#".repeat(*level))?;
                write!(html, "<h{level}>{}</h{level}>", escape(text))?;
            }
            Block::Text(text) => {
                writeln!(markdown, "{text}\n")?;
                write!(html, "<p>{}</p>", with_code(text))?;
            }
            Block::Table { head, rows } => {
                writeln!(markdown, "| {} |\n|{}", head.join(" | "), "---|".repeat(head.len()))?;
                rows.iter().try_for_each(|row| writeln!(markdown, "| {} |", row.join(" | ")))?;
                markdown.push('\n');
                let cells = |cell: &str, texts: &mut dyn Iterator<Item = &str>| {
                    texts.fold(String::new(), |line, text| line + &format!("<{cell}>{}</{cell}>", with_code(text)))
                };
                write!(html, "<table><tr>{}</tr>", cells("th", &mut head.iter().copied()))?;
                for row in rows {
                    write!(html, "<tr>{}</tr>", cells("td", &mut row.iter().map(String::as_str)))?;
                }
                html += "</table>";
            }
            Block::Figure { title, lines, .. } if lines.iter().all(|line| line.points.is_empty()) => {
                writeln!(markdown, "{title}: nothing was recorded.\n")?;
                write!(html, "<p>{}: nothing was recorded.</p>", escape(title))?;
            }
            Block::Figure { name, title, x, y, lines } => {
                let svg = chart(x, y, lines)?;
                std::fs::write(figures.join(format!("{name}.svg")), &svg)?;
                writeln!(markdown, "{title}\n\n![{title}](figures/{name}.svg)\n")?;
                write!(html, "<p>{}</p>{svg}", escape(title))?;
            }
        }
    }
    std::fs::write(directory.join("README.md"), markdown.trim_end().to_string() + "\n")?;
    std::fs::write(directory.join("index.html"), html + "</html>\n")?;
    Ok(())
}

/// Escapes text, and shows as code what stands between backticks.
fn with_code(text: &str) -> String {
    let pieces = text.split('`').enumerate();
    let shown = pieces.map(|(at, piece)| match at % 2 {
        0 => escape(piece),
        _ => format!("<code>{}</code>", escape(piece)),
    });
    shown.collect()
}
