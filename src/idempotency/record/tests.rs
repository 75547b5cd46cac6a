use http::Request;
use http::header::ETAG;

use super::*;

fn fingerprint() -> Fingerprint {
    let (request, ()) = Request::post("/transfers").body(()).unwrap().into_parts();
    Fingerprint::of(&request, b"{}")
}

fn recorded() -> Bytes {
    let response = Response::builder()
        .status(201)
        .header("set-cookie", "a=1")
        .header("x-bytes", HeaderValue::from_bytes(b"\xff\xfe").unwrap())
        .header("set-cookie", "b=2")
        .header("connection", "close, X-Hop")
        .header("x-hop", "1")
        .header("transfer-encoding", "chunked")
        .header("date", "Thu, 01 Jan 1970 00:00:00 GMT");
    let (response, ()) = response.body(()).unwrap().into_parts();
    encode(fingerprint(), &response, b"\0done", true)
}

#[test]
fn a_record_gives_back_what_was_put_in_except_what_belongs_to_one_connection() {
    let (of, response) = decode(&recorded()).unwrap();
    assert_eq!(of, fingerprint());
    assert_eq!(response.status(), 201);
    let mut lines: Vec<_> = response.headers().iter().collect();
    lines.sort_by_key(|(name, _)| name.as_str());
    let lines: Vec<_> = lines
        .into_iter()
        .map(|(name, value)| (name.as_str(), value.as_bytes()))
        .collect();
    let expected: [(&str, &[u8]); 4] = [
        ("idempotent-replayed", b"true"),
        ("set-cookie", b"a=1"),
        ("set-cookie", b"b=2"),
        ("x-bytes", b"\xff\xfe"),
    ];
    assert_eq!(lines, expected);
    assert_eq!(*response.body(), "\0done");
}

#[test]
fn a_record_that_is_cut_off_or_extended_is_refused() {
    let whole = recorded();
    for length in 0..whole.len() {
        assert!(decode(&whole.slice(..length)).is_err(), "{length}");
    }
    let longer = Bytes::from([&whole[..], b"!"].concat());
    assert_eq!(decode(&longer).err(), Some("it is damaged"));
}

#[test]
fn a_changed_byte_causes_no_panic() {
    let whole = recorded();
    for index in 0..whole.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut changed = whole.to_vec();
            changed[index] = value;
            let _ = decode(&changed.into());
        }
    }
}

/// A map of headers has a longest length.
#[test]
fn a_record_with_too_many_header_lines_causes_no_panic() {
    let whole = recorded();
    let start = MAGIC.len() + 1 + 32 + 8 + 2;
    let lines: String = (0..40_000).map(|n| format!("x{n}:1\n")).collect();
    let record = [&whole[..start], lines.as_bytes(), &whole[start..]].concat();
    assert!(decode(&record.into()).is_err());
}

#[test]
fn foreign_records_and_other_versions_are_distinguished() {
    let why = |record: &[u8]| decode(&Bytes::copy_from_slice(record)).unwrap_err();
    assert!(why(b"{\"status\":200}").starts_with("it is not a record"));
    for other in [2, 4] {
        let record = [MAGIC, &[other], b"?"].concat();
        assert!(why(&record).starts_with("another version"));
    }
}

/// A new layout needs a new version, because processes with several versions of this crate may share a Redis.
#[test]
fn the_layout_is_fixed() {
    let fingerprint = Fingerprint::of_bytes(b"");
    let response = Response::builder().header(ETAG, "x").body(()).unwrap();
    let encoded = encode(fingerprint, &response.into_parts().0, b"ab", false);
    assert_eq!(encoded[..9], *b"tdl-idem\x03");
    assert_eq!(encoded[9..][..32], fingerprint.0);
    assert_eq!(encoded[9 + 32..], *b"\0\0\0\0\0\0\0\x02\0\xc8etag:x\n\nab");
}
