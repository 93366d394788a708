//! The document as Markdown. Figures are files beside it.

use super::Block;

pub(super) fn of(blocks: &[Block]) -> String {
    let blocks: Vec<String> = blocks.iter().map(block).collect();
    blocks.join("\n\n") + "\n"
}

fn block(block: &Block) -> String {
    match block {
        Block::Heading(level, text) => format!("{} {text}", "#".repeat(*level)),
        Block::Text(text) => text.clone(),
        Block::Note(text) => format!("> {text}"),
        Block::Tiles(tiles) => {
            let rows: Vec<Vec<String>> = tiles.iter().map(|(value, what)| vec![value.clone(), what.clone()]).collect();
            table(&["figure", "what"], &rows)
        }
        Block::Table { head, rows } => table(head, rows),
        Block::Figure { name, title, .. } => format!("{title}\n\n![{title}](figures/{name}.svg)"),
    }
}

fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let begin = format!("| {} |\n|{}", head.join(" | "), "---|".repeat(head.len()));
    rows.iter().fold(begin, |text, row| text + &format!("\n| {} |", row.join(" | ")))
}
