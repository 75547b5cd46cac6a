//! Reads one field of a JSON text. The rest of the text is skipped: as values, 2 MiB of JSON would be 200 MiB.

use std::fmt;

use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Error, Number};

/// The value at a place of a JSON text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum JsonValue {
    /// Nothing, or `null`.
    Absent,
    /// A string, or a number as `serde_json` writes it.
    Name(String),
    /// `true`, `false`, an array or an object.
    Other,
}

/// Finds the value at `pointer` (RFC 6901), which is empty or begins with `/`. Of repeated members the last one counts.
///
/// # Errors
///
/// If `json` is not one JSON text.
pub(super) fn field(json: &[u8], pointer: &str) -> Result<JsonValue, Error> {
    let mut value: &RawValue = serde_json::from_slice(json)?;
    for token in pointer.split('/').skip(1) {
        let token = token.replace("~1", "/").replace("~0", "~");
        match child(value, &token)? {
            Some(child) => value = child,
            None => return Ok(JsonValue::Absent),
        }
    }
    Ok(match value.get().as_bytes() {
        [b'"', ..] => JsonValue::Name(serde_json::from_str(value.get())?),
        [b'-' | b'0'..=b'9', ..] => {
            JsonValue::Name(serde_json::from_str::<Number>(value.get())?.to_string())
        }
        [b'n', ..] => JsonValue::Absent,
        _ => JsonValue::Other,
    })
}

/// The member or the element that a token of a pointer names.
fn child<'a>(value: &'a RawValue, token: &str) -> Result<Option<&'a RawValue>, Error> {
    let mut json = serde_json::Deserializer::from_str(value.get());
    match value.get().as_bytes() {
        [b'{', ..] => json.deserialize_map(JsonChild { token }),
        [b'[', ..] => json.deserialize_seq(JsonChild { token }),
        _ => Ok(None),
    }
}

struct JsonChild<'t> {
    token: &'t str,
}

impl<'a> Visitor<'a> for JsonChild<'_> {
    type Value = Option<&'a RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or an array")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some((name, value)) = members.next_entry::<String, _>()? {
            if name == self.token {
                found = Some(value);
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let wanted = index(self.token);
        let (mut found, mut place) = (None, 0);
        while let Some(element) = elements.next_element()? {
            if Some(place) == wanted {
                found = Some(element);
            }
            place += 1;
        }
        Ok(found)
    }
}

/// RFC 6901, 4: digits without a leading zero.
fn index(token: &str) -> Option<usize> {
    let is_plain = token == "0" || !token.starts_with(['0', '+']);
    is_plain.then(|| token.parse().ok()).flatten()
}

#[cfg(test)]
mod tests;
