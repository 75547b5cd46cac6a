use super::*;
use std::collections::HashSet;

#[test]
fn different_components_never_collide() {
    let long = "x".repeat(300);
    let longer = "x".repeat(301);
    let cases: &[&[&str]] = &[
        &[],
        &[""],
        &["", ""],
        &["a"],
        &["a", ""],
        &["", "a"],
        &["a:"],
        &["a%3A"],
        &[":a"],
        &["{a}"],
        &["a\0"],
        &["a\r\n"],
        &["é"],
        &["e\u{301}"],
        &[&long],
        &[&longer],
        &[&long, ""],
    ];
    let keys: HashSet<_> = cases
        .iter()
        .map(|c| LockKey::from_parts("r", c.iter()))
        .collect();
    assert_eq!(keys.len(), cases.len());
}

#[test]
fn a_name_space_stands_before_the_name_and_is_not_shown() {
    let plain = LockKey::new("order:{7}");
    let key = plain.clone().in_namespace("prod-shop:");
    assert_eq!(key.as_str(), "prod-shop:order:{7}");
    assert_eq!((key.name(), &*key.to_string()), ("order:{7}", "order:{7}"));
    assert_eq!(format!("{key:?}"), "\"order:{7}\"");
    assert_eq!(
        (plain.namespace(), key.namespace()),
        (None, Some("prod-shop:"))
    );
    assert_eq!(plain.clone().in_namespace("").namespace(), Some(""));
    let whole = LockKey::new("prod-shop:order:{7}");
    assert_eq!(key, whole, "one key of the store");
    assert!(HashSet::from([key]).contains(&whole));
}

#[test]
fn a_tenants_key_stays_in_the_name_space() {
    let plain = LockKey::new("order");
    let here = |key: LockKey| key.in_namespace("prod-shop:");
    for tenant in ["acme", &"x".repeat(300)] {
        let key = here(plain.clone()).tenant(tenant);
        assert_eq!(key, here(plain.tenant(tenant)));
        assert_eq!(key.namespace(), Some("prod-shop:"));
    }
}

#[test]
fn tenants_have_keys_of_their_own() {
    let order = LockKey::from_parts("lock:order", ["42"]);
    let names: HashSet<_> = ["a", "b", "", "a:b", "@a"]
        .map(|tenant| order.tenant(tenant).as_str().to_owned())
        .into();
    assert_eq!(names.len(), 5);
    assert_ne!(
        order.tenant("a"),
        LockKey::from_parts("lock:order", ["42", "@a"])
    );
    let long = LockKey::new("é".repeat(100)).tenant("x".repeat(300));
    assert!(long.as_str().len() <= MAX_COMPOSED);
}

#[test]
fn composed_names_are_bounded_and_plain() {
    let key = LockKey::from_parts(&"resource{".repeat(50), ["\u{7f}{}\n".repeat(1000)]);
    assert!(key.as_str().len() <= MAX_COMPOSED);
    assert!(
        key.as_str()
            .bytes()
            .all(|b| b.is_ascii_graphic() && b != b'{' && b != b'}')
    );
}

#[test]
fn different_keys_of_one_scope_make_different_names() {
    let scoped = |scope, keys: &[&str]| {
        let keys: Vec<_> = keys.iter().map(|key| LockKey::new(*key)).collect();
        let keys: Vec<_> = keys.iter().collect();
        LockKey::scoped("idempotency", scope, &keys)
    };
    let scope = ["POST", "/a:b", ""];
    let single = scoped(scope, &["order:4%3A2"]);
    assert_eq!(single.as_str(), "idempotency:POST:/a%3Ab::order:4%3A2");
    let names = [
        single,
        scoped(scope, &[]),
        scoped(scope, &["a", "b"]),
        scoped(scope, &["a:b"]),
        scoped(scope, &["a:+b"]),
        scoped(scope, &["+a:+b"]),
        scoped(scope, &["+a"]),
        scoped(["POST", "/a", "b"], &["a"]),
        scoped(["POST", "/a", ""], &["b:a"]),
        scoped(scope, &["a", &"x".repeat(300)]),
        scoped(scope, &["a", &"x".repeat(301)]),
    ];
    let different: HashSet<_> = names.iter().collect();
    assert_eq!(different.len(), names.len(), "{names:?}");
}
