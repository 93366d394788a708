//! The document as a page: sections in one column, and a table of contents that stays beside them.

use super::Block;
use crate::report::html::{figure, page, table};
use crate::report::markup::{escape, with_code};
use std::collections::BTreeSet;

/// Headings down to this level are in the table of contents.
const LISTED: usize = 2;

pub(super) fn of(blocks: &[Block]) -> String {
    let anchors = anchors(blocks);
    let title = blocks.iter().find_map(heading).map_or("tessera bench suite", |(_, text)| text);
    let (mut contents, mut main) = (String::new(), String::new());
    let mut is_in_section = false;
    for (number, (block, anchor)) in blocks.iter().zip(&anchors).enumerate() {
        let Block::Heading(level, text) = block else {
            main += &shown(block);
            continue;
        };
        if *level <= LISTED {
            main += if is_in_section { "</section>" } else { "" };
            main += "<section>";
            is_in_section = true;
            // The first one is what the page is called.
            let text = if number == 0 { "In figures" } else { text.as_str() };
            contents += &format!("<a href=\"#{anchor}\">{}</a>", escape(text));
        }
        main += &format!("<h{level} id=\"{anchor}\">{}</h{level}>", escape(text));
    }
    main += if is_in_section { "</section>" } else { "" };
    let body =
        format!("<nav class=\"contents\" aria-label=\"Contents\"><b>Contents</b>{contents}</nav><main>{main}</main>");
    page(title, &body)
}

fn heading(block: &Block) -> Option<(usize, &str)> {
    match block {
        Block::Heading(level, text) => Some((*level, text)),
        _ => None,
    }
}

/// A name for each heading, and nothing for other blocks.
fn anchors(blocks: &[Block]) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let mut free = |text: &str| {
        let name = text.to_lowercase().split(|letter: char| !letter.is_ascii_alphanumeric()).fold(
            String::new(),
            |name, word| match (name.is_empty(), word.is_empty()) {
                (_, true) => name,
                (true, _) => word.to_string(),
                _ => name + "-" + word,
            },
        );
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        let mut names = [name.clone()].into_iter().chain(numbered);
        names.find(|name| taken.insert(name.clone())).unwrap_or_default()
    };
    blocks.iter().map(|block| heading(block).map_or(String::new(), |(_, text)| free(text))).collect()
}

fn shown(block: &Block) -> String {
    match block {
        Block::Heading(..) => String::new(),
        Block::Text(text) => format!("<p>{}</p>", with_code(text)),
        Block::Note(text) => format!("<p class=\"note\">{}</p>", with_code(text)),
        Block::Tiles(tiles) => {
            let tile = |(value, what): &(String, String)| {
                format!("<div><dt>{}</dt><dd>{}</dd></div>", with_code(what), escape(value))
            };
            format!("<dl class=\"tiles\">{}</dl>", tiles.iter().map(tile).collect::<String>())
        }
        Block::Table { head, rows } => table(head, rows),
        Block::Figure { title, chart, .. } => figure(title, chart),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contents_lead_to_every_section() {
        let headings = [(1, "All"), (2, "A: b & c"), (3, "deep"), (2, "a, B, C"), (2, "2")];
        let blocks = headings.map(|(level, text)| Block::Heading(level, text.into()));
        assert_eq!(anchors(&blocks), ["all", "a-b-c", "deep", "a-b-c-2", "2"]);
        let page = of(&blocks);
        for anchor in ["all", "a-b-c", "a-b-c-2"] {
            assert!(page.contains(&format!("href=\"#{anchor}\"")) && page.contains(&format!("id=\"{anchor}\"")));
        }
        assert!(!page.contains("href=\"#deep\""));
        assert_eq!(page.matches("<section>").count(), page.matches("</section>").count());
    }
}
