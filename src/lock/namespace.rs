//! What stands before all names of a client.

use std::sync::Arc;

use super::LockKey;

/// The longest name space, in bytes.
const LONGEST: usize = 64;

/// What ends a name space. None of them stands inside of one, and no name in a name space begins with one. So no name space begins
/// another, and a name in the store belongs to one name space: otherwise `prod` + `shop:lock:x` would be `prod:shop` + `lock:x`.
const ENDS: [char; 2] = [':', '.'];

/// What stands before every name of a client, its end included; empty if nothing does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Namespace(Arc<str>);

impl Namespace {
    /// Checks a name space. A colon ends it unless it has an end.
    pub(crate) fn new(name: &str) -> Result<Self, &'static str> {
        let word = name.trim_end_matches(ENDS);
        let tag = word.strip_prefix('{').and_then(|tag| tag.strip_suffix('}'));
        let plain = tag.unwrap_or(word);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_~/".contains(c);
        if plain.is_empty() || !plain.chars().all(is_plain) {
            return Err(
                "a name space is one word of letters, digits and `-_~/`, such as `prod-shop`, which may stand in braces; it ends in \
                 colons or dots, or a colon is added. So no name space begins another",
            );
        }
        if name.len() > LONGEST {
            return Err("a name space has 64 bytes at most");
        }
        let end = if word == name { ":" } else { "" };
        Ok(Self(format!("{name}{end}").into()))
    }

    /// The key in this name space, if it is in none yet. Another key is left as it is, and [`Namespace::check`] refuses it.
    pub(crate) fn key(&self, key: LockKey) -> LockKey {
        let is_other = !self.0.is_empty() && key.as_str().starts_with(ENDS);
        match key.namespace() {
            None if !is_other => key.in_namespace(&self.0),
            _ => key,
        }
    }

    /// Whether [`Namespace::key`] has put the key here. Else the text says why not: here it would name something else than where it
    /// comes from.
    pub(crate) fn check(&self, key: &LockKey) -> Result<(), &'static str> {
        match key.namespace() {
            Some(namespace) if *namespace == *self.0 => Ok(()),
            Some(_) => Err(
                "the key belongs to another name space: use the client or the admin of that one, or name the key by \
                 `LockKey::name` if this name space has its own thing of that name",
            ),
            None => Err(
                "a name in a name space does not begin with a colon or a dot: it could be in another name space",
            ),
        }
    }

    /// The key of the store, as one of this name space; `None` if it is in another.
    pub(crate) fn own(&self, key: LockKey) -> Option<LockKey> {
        let name = key.as_str().strip_prefix(&*self.0)?;
        let is_own = self.0.is_empty() || !name.starts_with(ENDS);
        is_own.then(|| key.with_namespace(self.0.len()))
    }

    /// What names in the store begin with.
    pub(crate) fn prefix(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_the_store_belongs_to_one_name_space() {
        let texts = [
            "a", "a:", "a::", "a.", "a:.", "aa", "{a}", "{a}.", "a/a", "a-a:",
        ];
        let names = ["x", "a:x", ":x", ".x", "a", "a::x", "{a}:x", "/x", "-a:x"];
        let mut found = std::collections::HashMap::new();
        for text in texts {
            let namespace = Namespace::new(text).expect("it is one");
            for name in names {
                let key = namespace.key(LockKey::new(name));
                let Ok(()) = namespace.check(&key) else {
                    assert!(name.starts_with(ENDS), "{text} {name}");
                    continue;
                };
                let from = (namespace.prefix().to_owned(), name);
                let other = found.insert(key.as_str().to_owned(), from.clone());
                assert!(other.is_none_or(|other| other == from), "{text} {name}");
            }
        }
        for text in texts {
            let namespace = Namespace::new(text).expect("it is one");
            for (whole, (prefix, name)) in &found {
                let own = namespace.own(LockKey::new(whole.as_str()));
                let expected = (prefix == namespace.prefix()).then_some(*name);
                assert_eq!(own.as_ref().map(LockKey::name), expected, "{text} {whole}");
            }
        }
    }
}
