//! Checks the name by which a request has found the page.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::problem::Problem;
use crate::shared::Shared;

/// Refuses a request to a name that is not the page's. A page of another site can point its own name at this address (DNS rebinding),
/// and its scripts then read the answers: a browser takes both for one origin, and says the other site's name in `Host`.
pub(crate) async fn check(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    // A router that was made outside of a runtime listens from its first request on.
    shared.history.listen();
    let known = match host(request.headers(), request.uri()) {
        Ok(Some(host)) => is_known(host, &shared.hosts),
        // No browser leaves it out.
        Ok(None) => true,
        Err(()) => false,
    };
    match known {
        true => next.run(request).await,
        false => {
            let why = "the console is not served under this name: see `Console::hosts`";
            Problem::new(StatusCode::MISDIRECTED_REQUEST, why).into_response()
        }
    }
}

/// The host of the request, with its port: `Host`, or the authority of HTTP/2. An error where there are two, or it is no text.
pub(crate) fn host<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Result<Option<&'a str>, ()> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let named = hosts.next().map(|host| host.to_str().map_err(drop));
    if hosts.next().is_some() {
        return Err(());
    }
    let authority = uri.authority().map(|authority| authority.as_str());
    Ok(named.transpose()?.or(authority))
}

/// Whether the host is an address, `localhost`, or among the names.
fn is_known(host: &str, names: &[String]) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    address.unwrap_or(name).parse::<IpAddr>().is_ok()
        || is("localhost")
        || names.iter().any(|other| is(other))
}

#[cfg(test)]
mod tests {
    use super::is_known;

    #[test]
    fn addresses_localhost_and_the_named_hosts_are_known() {
        let names = ["ops.example".to_owned()];
        for host in [
            "127.0.0.1:3003",
            "10.1.2.3",
            "[::1]:3003",
            "[::1]",
            "localhost:3003",
            "LOCALHOST",
            "ops.example",
            "Ops.Example:443",
        ] {
            assert!(is_known(host, &names), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "127.0.0.1.evil.example:3003",
            "localhost.evil.example",
            "localhost:evil",
            "ops.example.evil",
            "a.ops.example",
            "[::1].evil.example",
            "127.0.0.1@evil.example",
        ] {
            assert!(!is_known(host, &names), "{host}");
        }
    }
}
