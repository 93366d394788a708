//! Pages that need no other file and no script, and what they are made of.

use super::chart::{self, Chart};
use super::markup::{escape, with_code};

const STYLE: &str = include_str!("page.css");
/// Wider tables say that they can be moved, where the screen is narrow.
const FITS: usize = 4;

/// A whole page; the body follows the style.
pub(crate) fn page(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width,initial-scale=1\"><meta name=\"color-scheme\" content=\"light dark\"><title>{}</title>\
         <style>{}{STYLE}</style></head>\n<body>{body}</body></html>\n",
        escape(title),
        chart::STYLE
    )
}

/// A table that scrolls by itself where it is too wide. What follows the last comma of a head is its unit. Columns of figures are
/// aligned at the right; a row that begins with an empty cell belongs to the row above.
pub(crate) fn table<Head: AsRef<str>>(head: &[Head], rows: &[Vec<String>]) -> String {
    let is_figures =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).all(|cell| is_figure(cell)) && !rows.is_empty();
    let classes: Vec<&str> =
        (0..head.len()).map(|column| if is_figures(column) { " class=\"n\"" } else { "" }).collect();
    let class = |column: usize| classes.get(column).copied().unwrap_or_default();
    let heads = head.iter().enumerate().map(|(column, name)| {
        let name = name.as_ref();
        let (name, unit) = name.rsplit_once(", ").unwrap_or((name, ""));
        let unit =
            if unit.is_empty() { String::new() } else { format!("<span class=\"unit\">{}</span>", escape(unit)) };
        format!("<th scope=\"col\"{}>{}{unit}</th>", class(column), with_code(name))
    });
    let mut html = String::new();
    if head.len() > FITS {
        html += "<p class=\"hint\">\u{2194} The table goes on at the right.</p>";
    }
    html += "<div class=\"scroll\" tabindex=\"0\"><table><thead><tr>";
    html.extend(heads);
    html += "</tr></thead><tbody>";
    for row in rows {
        let is_more = row.first().is_some_and(String::is_empty);
        html += if is_more { "<tr class=\"more\">" } else { "<tr>" };
        html.extend(
            row.iter().enumerate().map(|(column, cell)| format!("<td{}>{}</td>", class(column), with_code(cell))),
        );
        html += "</tr>";
    }
    html + "</tbody></table></div>"
}

/// Whether a cell is a number, maybe with a unit, or stands for one that there is not.
fn is_figure(cell: &str) -> bool {
    cell.is_empty() || cell == "-" || cell.trim_start_matches('-').starts_with(|first: char| first.is_ascii_digit())
}

/// A chart with its title.
pub(crate) fn figure(title: &str, chart: &Chart) -> String {
    format!("<figure><figcaption>{}</figcaption>{}</figure>", escape(title), chart.inline(title))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_have_units_and_no_markup() {
        let table = table(&["<h>, <u>"], &[vec!["<i>".into()]]);
        assert!(
            table.contains("&lt;h&gt;<span class=\"unit\">&lt;u&gt;</span>") && table.contains("<td>&lt;i&gt;</td>")
        );
    }

    #[test]
    fn figures_are_aligned_and_rows_that_belong_together_are_shown_so() {
        let rows = [["A", "1,024 B", "-"], ["", "3.5 %", "12"]].map(|row| row.map(String::from).to_vec());
        let table = table(&["name", "size", "rate"], &rows);
        assert_eq!(table.matches("<td class=\"n\">").count(), 4);
        assert!(table.contains("<tr class=\"more\"><td></td>") && table.contains("<tr><td>A</td>"));
    }
}
