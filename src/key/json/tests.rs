use fastrand::Rng;
use serde_json::Value;

use super::*;

const NAMES: [&str; 6] = ["a", "b", "0", "1", "a/b", "~"];
const TOKENS: [&str; 10] = ["a", "b", "0", "1", "a~1b", "~0", "01", "+1", "-", ""];

/// The value that `serde_json` finds when it parses the whole text.
fn built(json: &[u8], pointer: &str) -> Option<JsonValue> {
    let value: Value = serde_json::from_slice(json).ok()?;
    Some(match value.pointer(pointer) {
        None | Some(Value::Null) => JsonValue::Absent,
        Some(Value::String(text)) => JsonValue::Name(text.clone()),
        Some(Value::Number(number)) => JsonValue::Name(number.to_string()),
        Some(_) => JsonValue::Other,
    })
}

fn text(random: &mut Rng, depth: usize) -> String {
    let inner = |random: &mut Rng| text(random, depth + 1);
    match random.u8(..if depth < 4 { 14 } else { 8 }) {
        0 => "null".into(),
        1 => "true".into(),
        2 => format!("{}", random.i64(..)),
        3 => format!("{:e}", random.f64()),
        4 => "18446744073709551616".into(),
        5 => r#""a\u0041\n\"""#.into(),
        6 => " \"text\" ".into(),
        7 => "\"\"".into(),
        8..11 => {
            let elements: Vec<_> = (0..random.usize(..4)).map(|_| inner(random)).collect();
            format!("[{}]", elements.join(" , "))
        }
        _ => {
            let mut member =
                || format!("\"{}\" : {}", random.choice(NAMES).unwrap(), inner(random));
            let members: Vec<_> = (0..4).map(|_| member()).collect();
            format!("{{{}}}", members.join(","))
        }
    }
}

#[test]
fn the_field_is_the_one_that_a_full_parse_finds() {
    let mut random = Rng::with_seed(7);
    let mut names = 0;
    for _ in 0..20_000 {
        let mut json = text(&mut random, 0);
        if random.u8(..10) == 0 {
            json.truncate(random.usize(..=json.len()));
        }
        let length = random.usize(..4);
        let tokens = (0..length).map(|_| random.choice(TOKENS).unwrap());
        let pointer: String = tokens.flat_map(|token| ["/", token]).collect();
        let field = field(json.as_bytes(), &pointer).ok();
        assert_eq!(
            field,
            built(json.as_bytes(), &pointer),
            "{pointer} in {json}"
        );
        names += usize::from(matches!(field, Some(JsonValue::Name(_))));
    }
    assert!(names > 1_000, "{names}");
}

#[test]
fn a_text_that_is_nested_deeply_needs_no_deep_stack() {
    let deep = format!(
        "{{\"id\":1,\"x\":{}{}}}",
        "[".repeat(1 << 20),
        "]".repeat(1 << 20)
    );
    let found = field(deep.as_bytes(), "/id").unwrap();
    assert_eq!(found, JsonValue::Name("1".into()));
    assert!(field(&deep.as_bytes()[..1 << 20], "/id").is_err());
}

#[test]
fn the_empty_pointer_points_at_the_whole_text() {
    assert_eq!(field(b"7", "").unwrap(), JsonValue::Name("7".into()));
}
