//! A JSON object that can be changed in one place and is left alone everywhere else.
//!
//! What is not understood keeps its text: numbers their spelling, keys their order.

use abp_json::{Kind, View, push_string};

/// A JSON value: an object taken apart, or the text of anything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tree {
    Object(Vec<Member>),
    Other(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    key: Key,
    value: Tree,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Key {
    Text(String),
    /// The source of a key that is no Unicode text.
    Source(String),
}

impl Tree {
    pub(crate) fn empty() -> Self {
        Self::Object(Vec::new())
    }

    pub(crate) fn read(view: View<'_>) -> Self {
        if view.kind() != Kind::Object {
            return Self::Other(view.raw().to_owned());
        }
        let member = |(key, value): (View<'_>, View<'_>)| Member {
            key: Key::read(key),
            value: Self::read(value),
        };
        Self::Object(view.entries().map(member).collect())
    }

    pub(crate) fn is_object(&self) -> bool {
        matches!(self, Self::Object(_))
    }

    /// Whether it is `true`.
    pub(crate) fn is_true(&self) -> bool {
        matches!(self, Self::Other(text) if text == "true")
    }

    pub(crate) fn get(&self, path: &[&str]) -> Option<&Self> {
        let Some((key, rest)) = path.split_first() else {
            return Some(self);
        };
        let Self::Object(members) = self else {
            return None;
        };
        let found = members.iter().rev().find(|member| member.key.is(key))?;
        found.value.get(rest)
    }

    /// Puts a value at a path. What is in the way and no object is replaced.
    pub(crate) fn set(&mut self, path: &[&str], value: Self) {
        let Some((key, rest)) = path.split_first() else {
            *self = value;
            return;
        };
        if !self.is_object() {
            *self = Self::empty();
        }
        let Self::Object(members) = self else {
            return;
        };
        match members.iter_mut().rev().find(|member| member.key.is(key)) {
            Some(member) => member.value.set(rest, value),
            None => {
                let mut below = Self::empty();
                below.set(rest, value);
                members.push(Member {
                    key: Key::Text((*key).to_owned()),
                    value: below,
                });
            }
        }
    }

    /// Takes away what is at a path.
    pub(crate) fn remove(&mut self, path: &[&str]) {
        let (Self::Object(members), Some((key, rest))) = (self, path.split_first()) else {
            return;
        };
        if rest.is_empty() {
            members.retain(|member| !member.key.is(key));
            return;
        }
        for member in members.iter_mut().filter(|member| member.key.is(key)) {
            member.value.remove(rest);
        }
    }

    /// The members of an object whose values are objects.
    pub(crate) fn objects(&self) -> impl Iterator<Item = (&str, &Self)> {
        let members = match self {
            Self::Object(members) => members.as_slice(),
            Self::Other(_) => &[],
        };
        members.iter().filter_map(|member| match &member.key {
            Key::Text(key) if member.value.is_object() => Some((key.as_str(), &member.value)),
            Key::Text(_) | Key::Source(_) => None,
        })
    }

    pub(crate) fn to_json(&self) -> String {
        let mut text = String::new();
        self.push_to(&mut text);
        text
    }

    fn push_to(&self, text: &mut String) {
        let members = match self {
            Self::Object(members) => members,
            Self::Other(json) => {
                text.push_str(json);
                return;
            }
        };
        text.push('{');
        for (index, member) in members.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            member.key.push_to(text);
            text.push(':');
            member.value.push_to(text);
        }
        text.push('}');
    }
}

impl Key {
    fn read(key: View<'_>) -> Self {
        match key.as_str() {
            Some(text) => Self::Text(text.into_owned()),
            None => Self::Source(key.raw().to_owned()),
        }
    }

    fn is(&self, name: &str) -> bool {
        matches!(self, Self::Text(text) if text == name)
    }

    fn push_to(&self, text: &mut String) {
        match self {
            Self::Text(key) => push_string(text, key),
            Self::Source(raw) => text.push_str(raw),
        }
    }
}
