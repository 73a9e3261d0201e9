//! Functions that turn texts into HTML for the page.

use std::borrow::Cow;

use super::MAX_TEXT;
use crate::base::clock::Time;
use crate::base::text::visible::one_line;
use crate::face::views::human;

/// Escapes a text for HTML, so that it may stand in a page or in the value of an attribute.
pub(in crate::server) fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(['<', '>', '&', '"', '\'']) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out.into()
}

/// Returns the text as one escaped line of at most [`MAX_TEXT`] characters. Characters that a text browser would send
/// on to its terminal are written out.
pub(super) fn text(text: &str) -> String {
    let line = one_line(text.trim());
    match line.char_indices().nth(MAX_TEXT) {
        Some((at, _)) => format!("{}…", escaped(&line[..at])),
        None => escaped(&line).into_owned(),
    }
}

/// Returns the text for a cell of a table. A text that is wider than `width` is shortened to its two ends; the whole
/// text appears when a mouse rests on it.
pub(super) fn cell(whole: &str, width: usize) -> String {
    let line = one_line(whole);
    let length = line.chars().count();
    if length <= width {
        return text(whole);
    }
    let (head, tail) = (width / 2, width - width / 2 - 1);
    let begin: String = line.chars().take(head).collect();
    let end: String = line.chars().skip(length - tail).collect();
    format!(
        "<span title=\"{}\">{}…{}</span>",
        text(whole),
        escaped(&begin),
        escaped(&end)
    )
}

/// Returns the name of an object, for example `web`. Outside of the namespace `default` the namespace stands before
/// it, for example `shop/web`.
pub(super) fn named(namespace: &str, name: &str) -> String {
    match namespace {
        "default" => name.into(),
        namespace => format!("{namespace}/{name}"),
    }
}

/// Returns a time as `12s ago`, with the exact time in attributes.
pub(super) fn time_ago(then: Time, now: Time) -> String {
    format!(
        "<time datetime=\"{then}\" title=\"{then}\">{} ago</time>",
        human::since(Some(then), now)
    )
}

/// Returns a number with the noun `what`, for example `1 pod` or `2 pods`.
pub(super) fn plural(n: usize, what: &str) -> String {
    match n {
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    }
}

/// Returns the sentence that says how many of `all` things the page leaves out; empty if all are shown. The parameter
/// `what` is the noun for one thing.
pub(super) fn left_out(all: usize, shown: usize, what: &str) -> String {
    match all.saturating_sub(shown) {
        0 => String::new(),
        n => format!("<p class=\"soft\">{} left out</p>\n", plural(n, what)),
    }
}
