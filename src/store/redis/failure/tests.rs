use super::*;
use StoreErrorKind::{Conflict, Refused, Transient, Unanswered};

#[test]
fn an_error_is_known_by_its_code_even_inside_a_script() {
    for (code, detail, expected) in [
        (
            "WRONGTYPE",
            "Operation against a key holding the wrong kind of value",
            Conflict,
        ),
        (
            "LOADING",
            "Redis is loading the dataset in memory",
            Transient,
        ),
        ("BUSY", "Redis is busy running a script", Transient),
        (
            "READONLY",
            "You can't write against a read only replica.",
            Transient,
        ),
        (
            "OOM",
            "command not allowed when used memory > 'maxmemory'.",
            Refused,
        ),
        ("NOPERM", "this user has no permissions", Refused),
        ("ERR", "max number of clients reached", Transient),
        ("ERR", "unknown command", Refused),
        (
            "ERR",
            "Error running script (call to f_1): @user_script:7: WRONGTYPE Operation against",
            Conflict,
        ),
        (
            "ERR",
            "Error running script (call to f_1): @user_script:7: -OOM command not allowed",
            Refused,
        ),
        (
            "ERR",
            "Error running script (call to f_1): @user_script:7: -READONLY You can't",
            Transient,
        ),
        (
            "ERR",
            "Script attempted to access a non local key in a cluster node script: f_1, on @user_script:7.",
            Unanswered,
        ),
        (
            "ERR",
            "user_script:7: WRONGTYPE the fencing counter is not a number",
            Conflict,
        ),
    ] {
        assert_eq!(meaning(code, Some(detail)), expected, "{code} {detail}");
    }
}

#[test]
fn a_refusal_that_an_operator_can_end_names_the_remedy() {
    for (code, detail, expected) in [
        (
            "NOPERM",
            "this user has no permissions",
            "prefix of this lock's name",
        ),
        (
            "ERR",
            "Error running script (call to f_1): @user_script:7: -NOPERM this user",
            "prefix of this lock's name",
        ),
        ("OOM", "command not allowed", "maxmemory"),
        (
            "ERR",
            "Error running script (call to f_1): @user_script:7: -OOM command not allowed",
            "maxmemory",
        ),
        (
            "MISCONF",
            "Redis is configured to save RDB snapshots",
            "disk",
        ),
    ] {
        let text = remedy(code, Some(detail)).unwrap_or_default();
        assert!(text.contains(expected), "{code} {detail}: {text}");
    }
    for detail in [
        "unknown command",
        "user_script:7: the name ROOM is too long",
        "no such user: OOM",
    ] {
        assert_eq!(remedy("ERR", Some(detail)), None, "{detail}");
    }
}

#[test]
fn a_server_that_refuses_writes_is_known_also_inside_a_script() {
    for (code, details, expected) in [
        (
            "READONLY",
            "You can't write against a read only replica.",
            true,
        ),
        (
            "MASTERDOWN",
            "Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            true,
        ),
        (
            "ERR",
            "Error running script (call to f_1): @user_script:7: -READONLY You can't",
            true,
        ),
        (
            "ERR",
            "user_script:7: READONLY You can't write against a read only replica.",
            true,
        ),
        (
            "ERR",
            "user_script:7: WRONGTYPE the fencing counter is not a number",
            false,
        ),
    ] {
        let answer = format!("-{code} {details}\r\n");
        let answer = redis::parse_redis_value(answer.as_bytes()).unwrap();
        assert_eq!(
            needs_another_connection(&answer),
            expected,
            "{code} {details}"
        );
    }
}
