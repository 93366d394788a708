//! Text within markup.

/// Escapes a text that is to stand in an element, or in an attribute between double quotes.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Escapes text, and shows as code what stands between backticks.
pub(crate) fn with_code(text: &str) -> String {
    let pieces = text.split('`').enumerate();
    let shown = pieces.map(|(at, piece)| match at % 2 {
        0 => escape(piece),
        _ => format!("<code>{}</code>", escape(piece)),
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escape("<a href=\"x\">&</a>"), "&lt;a href=&quot;x&quot;&gt;&amp;&lt;/a&gt;");
        assert_eq!(with_code("`a<b` & c"), "<code>a&lt;b</code> &amp; c");
    }
}
