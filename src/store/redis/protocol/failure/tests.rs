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
fn a_right_that_is_lacking_is_named_even_inside_a_script() {
    for (answer, expected) in [
        ("NOPERM this user has no permissions", true),
        (
            "ERR Error running script (call to f_1): @user_script:7: -NOPERM this user",
            true,
        ),
        ("ERR user_script:7: the name NOPERMIT is too long", false),
        ("ERR no such user: NOPERM", false),
    ] {
        let error = redis::parse_redis_value(format!("-{answer}\r\n").as_bytes()).unwrap();
        let error = accepted(error).unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(source.contains("acl_rules"), expected, "{answer}: {source}");
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
