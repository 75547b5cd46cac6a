//! The page and its files.

use std::sync::Arc;

use axum::Router;
use axum::extract::OriginalUri;
use axum::http::header::CONTENT_TYPE;
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::shared::Shared;

const PAGE: &str = include_str!("page/index.html");

/// The page's files: their names, types and texts.
const FILES: [(&str, &str, &str); 8] = [
    ("/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
    ("/style.css", CSS, include_str!("page/style.css")),
    ("/main.js", SCRIPT, include_str!("page/main.js")),
    ("/dom.js", SCRIPT, include_str!("page/dom.js")),
    ("/keys.js", SCRIPT, include_str!("page/keys.js")),
    ("/detail.js", SCRIPT, include_str!("page/detail.js")),
    ("/history.js", SCRIPT, include_str!("page/history.js")),
    ("/store.js", SCRIPT, include_str!("page/store.js")),
];

const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The placeholder in the page for the path from its address to its files.
const BASE: &str = "{base}";

/// The characters that could end the attribute in which the path stands.
const MARKUP: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'&')
    .add(b'"')
    .add(b'\'')
    .add(b'<')
    .add(b'>');

pub(crate) fn routes() -> Router<Arc<Shared>> {
    let page = async |OriginalUri(uri): OriginalUri| Html(PAGE.replace(BASE, &base(uri.path())));
    let routes = Router::new().route("/", get(page));
    FILES
        .into_iter()
        .fold(routes, |routes, (name, kind, text)| {
            let file = async move || ([(CONTENT_TYPE, kind)], text).into_response();
            routes.route(name, get(file))
        })
}

/// The path from the page at `path` to its files. It is relative, so that it also works behind a proxy that serves the page
/// at another path.
fn base(path: &str) -> String {
    match path.rsplit('/').next().unwrap_or_default() {
        "" => "./".to_owned(),
        last => format!("./{}/", utf8_percent_encode(last, MARKUP)),
    }
}

#[cfg(test)]
mod tests {
    use super::base;

    #[test]
    fn the_page_finds_its_files_wherever_it_is_nested() {
        for (path, expected) in [
            ("/", "./"),
            ("/_locks", "./_locks/"),
            ("/_locks/", "./"),
            ("/ops/locks", "./locks/"),
            ("/a:b", "./a:b/"),
            ("/\"><script>", "./%22%3E%3Cscript%3E/"),
        ] {
            assert_eq!(base(path), expected);
        }
    }
}
