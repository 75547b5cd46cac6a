//! Durations as people write them.

use std::time::Duration;

/// Reads `10s`, `1h 30m`, `500ms`, `1d`; `0`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    match text.trim() {
        "0" => Ok(Duration::ZERO),
        text => humantime::parse_duration(text)
            .map_err(|error| format!("{error}: write it as 10s, 500ms, 1h30m or 1d")),
    }
}

/// Reads the time between two questions to a store.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let shortest = Duration::from_millis(10);
    match parse(text)? {
        long if long >= shortest => Ok(long),
        _ => Err(format!(
            "the store would have no rest: choose {shortest:?} or more"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_without_a_unit_is_no_duration_but_zero_is() {
        assert_eq!(parse("0"), Ok(Duration::ZERO));
        assert_eq!(parse("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse("250ms"), Ok(Duration::from_millis(250)));
        assert!(parse("10").is_err_and(|said| said.contains("10s")));
        assert!(parse("-1s").is_err());
    }

    #[test]
    fn a_store_is_not_asked_without_a_pause() {
        assert_eq!(interval("10ms"), Ok(Duration::from_millis(10)));
        assert!(interval("0").is_err_and(|said| said.contains("10ms")));
    }
}
