//! Patterns of names.

use std::iter;

/// Whether `name` matches `pattern`: `*` matches any characters, `?` one character, and any other character
/// itself.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let name: Vec<_> = name.chars().collect();
    // Which prefixes of the name the pattern matches so far, the empty one first.
    let mut matched = vec![false; name.len() + 1];
    matched[0] = true;
    for wanted in pattern.chars() {
        if wanted == '*' {
            let shortest = matched.iter().position(|matched| *matched);
            matched[shortest.unwrap_or(name.len() + 1)..].fill(true);
        } else {
            let fits = name.iter().map(|c| wanted == '?' || wanted == *c);
            let longer = matched
                .iter()
                .zip(fits)
                .map(|(before, fits)| *before && fits);
            matched = iter::once(false).chain(longer).collect();
        }
    }
    matched[name.len()]
}

/// The literal prefix of every matching name, which the store searches for.
pub(crate) fn prefix(pattern: &str) -> &str {
    let end = pattern.find(['*', '?']).unwrap_or(pattern.len());
    &pattern[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks_are_the_only_wildcards() {
        for (pattern, name) in [
            ("*", ""),
            ("order:*", "order:42"),
            ("order:*:a", "order:4:a:2:a"),
            ("*a*b", "xaybab"),
            ("o?der", "oéder"),
            ("[x]", "[x]"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("", "a"),
            ("order:*", "orders"),
            ("*a*b", "xayba"),
            ("o?", "o"),
            ("[xy]", "x"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn the_store_looks_for_what_stands_before_the_first_wildcard() {
        assert_eq!(prefix("order:*:x"), "order:");
        assert_eq!(prefix("order:42"), "order:42");
    }
}
