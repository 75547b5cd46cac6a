//! Patterns of names.

/// Whether `name` matches `pattern`: `*` matches any characters, `?` one character, and any other character
/// itself.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<_>, Vec<_>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // The position of the last `*`, and the end of the part of the name that it matches so far.
    let mut star = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(&c) if c == '?' || c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match &mut star {
                Some((at, upto)) => {
                    *upto += 1;
                    (p, n) = (*at + 1, *upto);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == '*')
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
