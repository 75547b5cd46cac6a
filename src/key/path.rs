use std::borrow::Cow;

use http::Uri;
use http::request::Parts;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};

use super::{KeyError, KeyExtractor, Keys, check_length};
use crate::lock::LockKey;

/// The path of the request, as the client sent it: also inside nested axum routers, which strip prefixes.
///
/// Percent-encoding is normalised: all spellings that a handler decodes to the same text are one key, such as `/a@b` and
/// `/a%40b`. `/` and `%2F` stay different. There is no other normalisation. Query and host are not part of it.
///
/// **Wrong where the handler reads two paths as one resource**: `/orders/1` and `/orders/01` are one order to `Path<u64>` and two
/// keys here; so are `/orders/1`, `/orders//1` and `/orders/1/`, and `/orders/1` beside `/orders/1/refunds`. Prefer `key::extract` or
/// `key::param` then.
pub fn path() -> impl KeyExtractor + Clone {
    key_of_path
}

pub(super) fn key_of_path(parts: &Parts) -> Result<Keys, KeyError> {
    let path = original_path(parts);
    check_length([&*path])?;
    Ok(LockKey::from_parts("path", [path]).into())
}

/// The path as the client sent it, in one spelling.
pub(crate) fn original_path(parts: &Parts) -> String {
    normalised(original(parts).path())
}

/// The query as the client sent it. No query and an empty one are the same.
pub(crate) fn original_query(parts: &Parts) -> &str {
    original(parts).query().unwrap_or_default()
}

fn original(parts: &Parts) -> &Uri {
    #[cfg(feature = "axum")]
    if let Some(axum::extract::OriginalUri(uri)) = parts.extensions.get() {
        return uri;
    }
    &parts.uri
}

/// Decodes everything except `%2F`, and encodes every character again that a path may not contain.
fn normalised(path: &str) -> String {
    let mut normal = String::with_capacity(path.len());
    let parts = path.split("%2F").flat_map(|part| part.split("%2f"));
    for (n, part) in parts.enumerate() {
        normal.push_str(if n == 0 { "" } else { "%2F" });
        let decoded: Cow<'_, [u8]> = percent_decode_str(part).into();
        normal.extend(percent_encode(&decoded, ESCAPED));
    }
    normal
}

/// What a path may not contain: all but what RFC 3986 calls unreserved and reserved.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_that_a_handler_decodes_to_one_text_are_one() {
        for (spelling, normal) in [
            ("/a/b", "/a/b"),
            ("/%61/b", "/a/b"),
            ("/%7Ea", "/~a"),
            ("/%c3%a9", "/%C3%A9"),
            ("/é", "/%C3%A9"),
            ("/{x}", "/%7Bx%7D"),
            ("/%7bx%7d", "/%7Bx%7D"),
            ("/a%2fb", "/a%2Fb"),
            ("/a%", "/a%25"),
            ("/a%4", "/a%254"),
            ("/%zz", "/%25zz"),
            ("/%25zz", "/%25zz"),
            ("/%2541", "/%2541"),
            ("/a+b", "/a+b"),
            ("/a%2Bb", "/a+b"),
            ("/a%40b%3A%3b", "/a@b:;"),
            ("/a%3Fb%23c", "/a?b#c"),
            ("/a/../b/", "/a/../b/"),
            ("*", "*"),
            ("/%00%0D%0A", "/%00%0D%0A"),
            ("/%FF", "/%FF"),
        ] {
            assert_eq!(normalised(spelling), normal, "{spelling}");
            assert_eq!(normalised(normal), normal, "{normal} is not normal");
        }
    }
}
