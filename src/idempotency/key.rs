//! Key extractors for idempotency keys: the header `Idempotency-Key`, and what the senders of webhooks send in its place.
//!
//! **They verify nothing.** Each of them reads what names a request, and any client can send that. Put the layer inside of the check of
//! the sender's signature. Otherwise a stranger who sends an id first is answered, and the sender's own request gets a 422 for the
//! whole retention.

use std::borrow::Cow;
use std::time::Duration;

use http::HeaderName;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use percent_encoding::percent_decode_str;
use sha2::{Digest, Sha256};

use crate::key::{
    KeyError, KeyExtractor, Keys, body, compose, header, json_field, key_of_fields, only_line,
};
use crate::lock::hex;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The header `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header): text in quotes, or without. The default of an
/// [`IdempotencyLayer`](crate::IdempotencyLayer).
///
/// The quotes are not part of the key: `"8e03978e"` and `8e03978e` are one. These are refused (400 `key-invalid`): an empty
/// key, a header on several lines, text after the closing quote; and, in a key without quotes, white space, commas and
/// quotes. A proxy may have joined two keys into such a header.
pub fn idempotency_key() -> impl KeyExtractor + Clone {
    |parts: &Parts| {
        let key = key_in(only_line(parts, &IDEMPOTENCY_KEY)?)?;
        compose("idempotency-key".into(), [&*key])
    }
}

/// Parses a string of RFC 9651, or a key without quotes.
fn key_in(value: &str) -> Result<Cow<'_, str>, KeyError> {
    let key = unquoted(value)?;
    let plain = |char: char| char.is_ascii_graphic() && !matches!(char, '"' | ',');
    match key {
        Cow::Borrowed(key) if !key.chars().all(plain) => Err(not_one_string()),
        key => Ok(key),
    }
}

/// What is in the quotes, if `value` begins with one: the whole of it is a string of RFC 9651 then, and not empty.
fn unquoted(value: &str) -> Result<Cow<'_, str>, KeyError> {
    let Some(quoted) = value.strip_prefix('"') else {
        return Ok(value.into());
    };
    let mut text = String::with_capacity(quoted.len());
    let mut chars = quoted.chars();
    loop {
        match chars.next() {
            Some('"') => break,
            Some('\\') => match chars.next() {
                Some(char @ ('"' | '\\')) => text.push(char),
                _ => return Err(not_one_string()),
            },
            Some(char @ ' '..='~') => text.push(char),
            _ => return Err(not_one_string()),
        }
    }
    match text.is_empty() || !chars.as_str().is_empty() {
        true => Err(not_one_string()),
        false => Ok(text.into()),
    }
}

fn not_one_string() -> KeyError {
    KeyError::invalid("the header is not one string")
}

/// The key of a provider's webhooks, and how that provider repeats them: for
/// [`IdempotencyLayer::webhook`](crate::IdempotencyLayer::webhook).
#[derive(Debug, Clone)]
pub struct Provider<K> {
    key: K,
    patience: Duration,
    pub(super) retention: Duration,
}

impl<K: KeyExtractor> Provider<K> {
    /// Describes a provider that waits for an answer for `patience`, and repeats a webhook for less than `retention`.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tower_distributed_lock::key;
    /// use tower_distributed_lock::idempotency::key::Provider;
    ///
    /// let patience = Duration::from_secs(20);
    /// let retention = Duration::from_secs(24 * 60 * 60);
    /// let ours = Provider::new(key::header("x-delivery"), patience, retention);
    /// ```
    pub fn new(key: K, patience: Duration, retention: Duration) -> Self {
        Self {
            key,
            patience,
            retention,
        }
    }

    /// How long a repeat waits: it is answered before the provider gives up.
    pub(super) fn wait(&self) -> Duration {
        self.patience * 4 / 5
    }
}

impl<K: KeyExtractor> KeyExtractor for Provider<K> {
    fn extract(&self, parts: &mut Parts) -> impl Future<Output = Result<Keys, KeyError>> + Send {
        self.key.extract(parts)
    }
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn days(days: u64) -> Duration {
    seconds(days * 24 * 60 * 60)
}

/// The header `webhook-id` of [Standard Webhooks](https://www.standardwebhooks.com).
///
/// It verifies nothing: check the signature, which covers this id, outside of the layer.
pub fn standard_webhooks() -> Provider<impl KeyExtractor + Clone> {
    Provider::new(header("webhook-id"), seconds(15), days(3))
}

/// The header `x-github-delivery` together with the body.
///
/// GitHub repeats both when it sends a delivery again. It signs the body, but not the header. A captured body under the id of another
/// delivery does not replace that delivery, but under a new id it is a new delivery. So check the signature outside of the layer, and
/// refuse old deliveries in the handler, by the timestamps in the body.
pub fn github() -> Provider<impl KeyExtractor + Clone> {
    Provider::new(delivery("x-github-delivery"), seconds(10), days(3))
}

/// The header `x-shopify-event-id` together with the body.
///
/// Shopify repeats both when it sends an event again, and signs only the body: see [`github`].
pub fn shopify() -> Provider<impl KeyExtractor + Clone> {
    Provider::new(delivery("x-shopify-event-id"), seconds(5), days(2))
}

/// The event's id in the body, as Stripe and others send it: `{"id": "evt_…"}`.
///
/// It verifies nothing: check the header `Stripe-Signature` outside of the layer.
pub fn stripe() -> Provider<impl KeyExtractor + Clone> {
    Provider::new(json_field("event", "/id"), seconds(10), days(3))
}

/// Source and id of a CloudEvents 1.0 event, which together name it: the headers `ce-source` and `ce-id` (binary mode), or
/// the body's fields if its type is `application/cloudevents+json` (structured mode).
///
/// It verifies nothing, and CloudEvents has no signature of its own: check who sends the event outside of the layer.
pub fn cloud_events() -> Provider<impl KeyExtractor + Clone> {
    Provider::new(key_of_event, seconds(10), days(1))
}

/// The header `id`, which the sender does not sign, together with the body that it signs: see [`github`].
fn delivery(id: &'static str) -> impl KeyExtractor + Clone {
    move |parts: &Parts| {
        // A delivery without an id is refused before its body is read.
        let value = only_line(parts, &HeaderName::from_static(id))?;
        let digest: String = hex(&Sha256::digest(body(parts)?)).collect();
        compose(id.into(), [value, &digest])
    }
}

fn key_of_event(parts: &Parts) -> Result<Keys, KeyError> {
    let resource = "cloudevent".into();
    if is_structured(parts)? {
        return key_of_fields(parts, resource, ["/source", "/id"]);
    }
    // A header has the value percent-encoded, perhaps in quotes, and the body has it as it is (HTTP binding of CloudEvents 1.0,
    // 3.1.3.2).
    let decoded = |name| {
        let value = unquoted(only_line(parts, &HeaderName::from_static(name))?)?;
        let value = percent_decode_str(&value).decode_utf8();
        let value = value.map_err(|_| KeyError::invalid("a header of the event is not UTF-8"));
        value.map(Cow::into_owned)
    };
    compose(resource, [&*decoded("ce-source")?, &*decoded("ce-id")?])
}

/// Whether the whole event is in the body, by its media type (RFC 9110, 8.3.1).
fn is_structured(parts: &Parts) -> Result<bool, KeyError> {
    if !parts.headers.contains_key(CONTENT_TYPE) {
        return Ok(false);
    }
    let content_type = only_line(parts, &CONTENT_TYPE)?;
    let media_type = content_type.split(';').next().unwrap_or_default();
    Ok(media_type
        .trim()
        .eq_ignore_ascii_case("application/cloudevents+json"))
}

#[cfg(test)]
mod tests {
    use super::key_in;

    #[test]
    fn a_key_is_one_string_with_quotes_or_without() {
        for (value, key) in [
            ("8e03978e-40d5", "8e03978e-40d5"),
            (r#""8e03978e-40d5""#, "8e03978e-40d5"),
            (r#""two words, one key""#, "two words, one key"),
            (r#""a\"b\\c""#, r#"a"b\c"#),
            ("a;b=c", "a;b=c"),
        ] {
            assert_eq!(key_in(value).ok().as_deref(), Some(key), "{value}");
        }
    }

    #[test]
    fn an_ambiguous_or_unfinished_value_is_refused() {
        for value in [
            "a,b",
            "a b",
            r#"a"b"#,
            r#""a", "b""#,
            r#""a"b"#,
            r#""a"#,
            r#"""#,
            r#""""#,
            r#""a\""#,
            r#""a\n""#,
            "\"a\tb\"",
            "\"é\"",
            "é",
        ] {
            assert!(key_in(value).is_err(), "{value}");
        }
    }
}
