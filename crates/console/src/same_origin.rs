//! Checks that a request comes from the page itself.

use axum::http::{HeaderMap, Uri, header};

use crate::host::host;

/// Returns `false` for a request that a page of another origin may have sent, and for a request without its origin.
///
/// A browser sets `Sec-Fetch-Site` itself, and no script can: if the header is present, it decides. Older browsers, and
/// addresses without TLS, send `Origin` only: its host and port must be those of the request.
pub(crate) fn is_same_origin(headers: &HeaderMap, uri: &Uri) -> bool {
    let mut sites = headers.get_all("sec-fetch-site").iter();
    if let Some(site) = sites.next() {
        return site == "same-origin" && sites.next().is_none();
    }
    let both = origin(headers).zip(host(headers, uri).ok().flatten());
    both.is_some_and(|(origin, host)| origin.eq_ignore_ascii_case(host))
}

/// The host and the port of the page that has sent the request.
fn origin(headers: &HeaderMap) -> Option<&str> {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let origin = origins.next()?.to_str().ok()?;
    let address = origin.strip_prefix("https://");
    let address = address.or_else(|| origin.strip_prefix("http://"));
    address.filter(|_| origins.next().is_none())
}

#[cfg(test)]
mod tests;
