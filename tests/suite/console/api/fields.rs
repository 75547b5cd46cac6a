//! The names of all fields.

use super::*;

/// The fields of the API, which `docs/guide/console.md` documents. A minor release may add some.
const FIELDS: &[(&str, &str)] = &[
    (
        "/api/keys",
        "held keys keys[].age_ms keys[].holder keys[].holder.id keys[].holder.kind keys[].holder.process keys[].holder.route keys[].holds keys[].key \
         keys[].lease_left_ms keys[].lease_ms keys[].longest_wait_ms keys[].mode keys[].renewed \
         keys[].route keys[].shares keys[].state keys[].token keys[].waiters keys_in_use matching page pages size waiters",
    ),
    (
        "/api/key?key=k",
        "holds holds[].age_ms holds[].id holds[].lease_left_ms holds[].lease_ms \
         holds[].mode holds[].renewed holds[].route holds[].shares holds[].state holds[].token key store \
         store.error store.holders store.holders[].count store.holders[].id store.holders[].kind \
         store.holders[].lease_left_ms store.holders[].mode store.holders[].process \
         store.holders[].route store.limit store.truncated store.waiters waiters waiters[].asks_store \
         waiters[].mode waiters[].route waiters[].waited_ms waiting",
    ),
    (
        "/api/events",
        "broken events events[].at_ms events[].cause events[].key events[].kind events[].mode events[].number \
         events[].outcome events[].route events[].waited_ms last lost missed refused",
    ),
    (
        "/api/durations",
        "bounds_ms series series[].mode series[].route series[].waits \
         series[].waits.buckets series[].waits.count series[].waits.mean_ms series[].waits.p50_ms series[].waits.p95_ms \
         series[].waits.p99_ms",
    ),
    (
        "/api/contended",
        "keys keys[].key keys[].waited_ms keys[].waits window_ms",
    ),
    (
        "/api/store",
        "answered_us audit audit.deployment audit.facts audit.members audit.promises audit.promises[].id audit.promises[].kept \
         audit.promises[].name audit.server_id audit.warnings audited_ms error",
    ),
    (
        "/api/process",
        "client may_break name noted_ms peers pid version",
    ),
];

#[tokio::test]
async fn the_fields_are_those_that_the_guide_documents() {
    let locks = locks();
    let page = Page::serve(console::router(&locks)).await;
    let guard = locks.lock("k").await.unwrap();
    let waiter = wait(locks.lock("k"));
    page.waiting("k", 1).await;
    let _ = locks.lock("k").wait(Duration::ZERO).await;
    guard.release().await.unwrap();
    let guard = waiter.await.unwrap();
    eventually("a contended key", SOON, async || {
        !page.json("/api/contended").await["keys"][0].is_null()
    })
    .await;
    let waiter = wait(locks.lock("k"));
    page.waiting("k", 1).await;
    let guide = include_str!("../../../../docs/guide/console.md");
    for (path, expected) in FIELDS {
        let shown = page.json(path).await;
        let mut found = BTreeSet::new();
        fields(&shown, "", &mut found);
        let found: Vec<_> = found.into_iter().collect();
        let expected: Vec<_> = expected.split_whitespace().collect();
        assert_eq!(found, expected, "{path}");
        for field in expected {
            let name = field.rsplit(['.', ']']).next().unwrap_or_default();
            assert!(
                guide.contains(&format!("`{name}`")),
                "the guide misses {name}"
            );
        }
    }
    waiter.abort();
    guard.release().await.unwrap();
}

fn fields(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields_of) => {
            for (name, value) in fields_of {
                let path = match path {
                    "" => name.clone(),
                    _ => format!("{path}.{name}"),
                };
                found.insert(path.clone());
                fields(value, &path, found);
            }
        }
        Value::Array(items) => {
            for item in items {
                if item.is_object() {
                    fields(item, &format!("{path}[]"), found);
                }
            }
        }
        _ => {}
    }
}
