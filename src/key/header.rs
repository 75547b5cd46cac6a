use http::HeaderName;
use http::request::Parts;

use super::{KeyError, KeyExtractor, check_length};
use crate::lock::LockKey;

/// The value of a header, as text and without surrounding white space.
///
/// A header on several lines, an empty one, and one that is not UTF-8 are refused (400 `key-invalid`): the layer cannot
/// know which of the values the handler uses.
///
/// **Wrong where the client chooses the header freely and the handler does not use it**: then the client decides which
/// requests exclude each other.
///
/// # Panics
///
/// If `name` is not a header name.
#[track_caller]
pub fn header<N>(name: N) -> impl KeyExtractor + Clone
where
    N: TryInto<HeaderName>,
{
    let Ok(name) = name.try_into() else {
        panic!("`key::header` was given something that is not a header name");
    };
    move |parts: &Parts| {
        let value = only_line(parts, &name)?;
        check_length([value])?;
        Ok::<_, KeyError>(LockKey::from_parts(name.as_str(), [value]))
    }
}

/// The value of a header that has exactly one line.
pub(crate) fn only_line<'a>(parts: &'a Parts, name: &HeaderName) -> Result<&'a str, KeyError> {
    let mut lines = parts.headers.get_all(name).iter();
    let value = lines
        .next()
        .ok_or_else(|| KeyError::missing_because(format!("the header `{name}` is missing")))?;
    if lines.next().is_some() {
        return Err(KeyError::invalid("the header occurs more than once"));
    }
    let value = std::str::from_utf8(value.as_bytes())
        .map_err(|_| KeyError::invalid("the header is not valid UTF-8"))?
        .trim();
    match value {
        "" => Err(KeyError::invalid("the header is empty")),
        value => Ok(value),
    }
}
