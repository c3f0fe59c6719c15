//! The checks that all dialects are checked with.

use abp_json::{Kind, View};

use super::{Issue, IssueProblem, IssueSeverity};
use crate::NameRule;

/// What a value has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Text,
    Flag,
    Number,
    Integer,
    List,
    Object,
    TextOrList,
    TextOrObject,
    ListOrObject,
}

impl Shape {
    fn accepts(self, value: View<'_>) -> bool {
        let kind = value.kind();
        match self {
            Self::Text => kind == Kind::String,
            Self::Flag => kind == Kind::Bool,
            Self::Number => kind == Kind::Number,
            Self::Integer => value.is_integer(),
            Self::List => kind == Kind::Array,
            Self::Object => kind == Kind::Object,
            Self::TextOrList => matches!(kind, Kind::String | Kind::Array),
            Self::TextOrObject => matches!(kind, Kind::String | Kind::Object),
            Self::ListOrObject => matches!(kind, Kind::Array | Kind::Object),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Text => "a string",
            Self::Flag => "a boolean",
            Self::Number => "a number",
            Self::Integer => "an integer",
            Self::List => "an array",
            Self::Object => "an object",
            Self::TextOrList => "a string or an array",
            Self::TextOrObject => "a string or an object",
            Self::ListOrObject => "an array or an object",
        }
    }
}

/// What was found so far.
#[derive(Debug)]
pub(super) struct Findings {
    issues: Vec<Issue>,
    tool_name: NameRule,
}

impl Findings {
    pub(super) fn new(tool_name: NameRule) -> Self {
        Self {
            issues: Vec::new(),
            tool_name,
        }
    }

    pub(super) fn into_issues(self) -> Vec<Issue> {
        self.issues
    }

    fn error(&mut self, pointer: String, problem: IssueProblem) {
        self.issues.push(Issue {
            pointer,
            severity: IssueSeverity::Error,
            problem,
        });
    }

    fn warn(&mut self, pointer: String, problem: IssueProblem) {
        self.issues.push(Issue {
            pointer,
            severity: IssueSeverity::Warning,
            problem,
        });
    }

    /// The value itself has to be of a shape.
    pub(super) fn expect(&mut self, value: View<'_>, shape: Shape) -> bool {
        let right = shape.accepts(value);
        if !right {
            let expected = shape.name();
            self.error(value.pointer(), IssueProblem::WrongKind { expected });
        }
        right
    }

    /// A member that may be absent. Returned if it is there and of its shape.
    pub(super) fn optional<'v>(
        &mut self,
        object: View<'v>,
        key: &str,
        shape: Shape,
    ) -> Option<View<'v>> {
        let value = present(object, key)?;
        self.expect(value, shape).then_some(value)
    }

    /// Members that may be absent.
    pub(super) fn optionals(&mut self, object: View<'_>, members: &[(&str, Shape)]) {
        for &(key, shape) in members {
            self.optional(object, key, shape);
        }
    }

    /// A member that has to be there. Returned if it is, and of its shape.
    pub(super) fn require<'v>(
        &mut self,
        object: View<'v>,
        key: &str,
        shape: Shape,
    ) -> Option<View<'v>> {
        if present(object, key).is_none() {
            self.error(member(object, key), IssueProblem::Missing);
        }
        self.optional(object, key, shape)
    }

    /// Members that have to be there.
    pub(super) fn requires(&mut self, object: View<'_>, members: &[(&str, Shape)]) {
        for &(key, shape) in members {
            self.require(object, key, shape);
        }
    }

    /// A text that some vendors take from elsewhere, such as the model in the route.
    pub(super) fn advise_text(&mut self, object: View<'_>, key: &str) {
        if present(object, key).is_none() {
            self.warn(member(object, key), IssueProblem::Missing);
        }
        self.optional(object, key, Shape::Text);
    }

    /// The objects of a list that has to hold something.
    pub(super) fn filled<'v>(&mut self, list: Option<View<'v>>) -> Vec<View<'v>> {
        if let Some(empty) = list.filter(|list| list.is_empty()) {
            self.error(empty.pointer(), IssueProblem::Empty);
        }
        self.objects(list)
    }

    /// The objects of a list, or the lone object in its stead. What else a list holds is wrong.
    pub(super) fn objects<'v>(&mut self, list: Option<View<'v>>) -> Vec<View<'v>> {
        let Some(list) = list else {
            return Vec::new();
        };
        if list.kind() == Kind::Object {
            return vec![list];
        }
        let items = list.items();
        items
            .filter(|item| self.expect(*item, Shape::Object))
            .collect()
    }

    /// A word that has to be there, and should be a known one.
    pub(super) fn word(&mut self, object: View<'_>, key: &str, known: &[&str]) {
        let value = self.require(object, key, Shape::Text);
        if let Some(value) = value {
            let word = text(object, key);
            if !known.contains(&word.as_str()) {
                self.warn(value.pointer(), IssueProblem::UnknownWord(word));
            }
        }
    }

    /// The name of a tool.
    pub(super) fn tool_name(&mut self, tool: View<'_>) {
        let value = self.require(tool, "name", Shape::Text);
        if let Some(value) = value {
            let name = text(tool, "name");
            if !self.tool_name.accepts(&name) {
                self.error(value.pointer(), IssueProblem::ToolName(name));
            }
        }
    }
}

/// The value of a member that is there and not `null`.
pub(super) fn present<'v>(object: View<'v>, key: &str) -> Option<View<'v>> {
    object.get(key).filter(|value| !value.is_null())
}

/// The text of a member; empty where there is none.
pub(super) fn text(object: View<'_>, key: &str) -> String {
    let value = object.get(key).and_then(View::as_str_lossy);
    value.unwrap_or_default().into_owned()
}

fn member(object: View<'_>, key: &str) -> String {
    format!("{}/{key}", object.pointer())
}
