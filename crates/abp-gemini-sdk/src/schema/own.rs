//! From JSON Schema to the vendor's language.

use std::borrow::Cow;

use abp_json::{Kind, Limits, Tape, View, Writer};

/// References are written out, so a small schema can stand for a huge one.
const MAX_SCHEMAS: usize = 10_000;

/// Keywords that mean the same in both languages.
const SAME: [&str; 16] = [
    "default",
    "description",
    "example",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "pattern",
    "propertyOrdering",
    "required",
    "title",
    "nullable",
];

/// A rewritten schema.
#[derive(Debug)]
pub(super) struct Rewritten {
    pub(super) text: String,
    /// Whether it describes an object that has no members.
    pub(super) is_empty_object: bool,
    pub(super) losses: Vec<Loss>,
}

/// Something that has no counterpart.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Loss {
    /// Where, as a pointer into the schema.
    pub(super) place: String,
    pub(super) label: &'static str,
    pub(super) reason: &'static str,
}

/// Why a schema cannot be rewritten at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    Recursive,
    TooLarge,
    Unreadable,
}

impl Refusal {
    pub(super) fn explain(self) -> (&'static str, &'static str) {
        match self {
            Self::Recursive => (
                "recursive_schema",
                "the model takes no references, and this one leads back to itself",
            ),
            Self::TooLarge => (
                "schema_too_large",
                "the model takes no references, and written out the schema is too large",
            ),
            Self::Unreadable => ("schema_unreadable", "the schema is no JSON object"),
        }
    }
}

/// Rewrites a JSON schema.
pub(super) fn rewrite(schema: &str) -> Result<Rewritten, Refusal> {
    let tape = Tape::parse_str(schema, &Limits::default()).map_err(|_| Refusal::Unreadable)?;
    let root = tape.root();
    if root.kind() != Kind::Object {
        return Err(Refusal::Unreadable);
    }
    let mut rewriter = Rewriter {
        tape: &tape,
        writer: Writer::with_capacity(schema.len()),
        losses: Vec::new(),
        following: Vec::new(),
        left: MAX_SCHEMAS,
    };
    rewriter.schema(root)?;
    let bare = |view: View<'_>| view.get("properties").is_none_or(View::is_empty);
    let is_empty_object = root.get("$ref").is_none()
        && root.get("anyOf").is_none()
        && root.get("allOf").is_none()
        && bare(root)
        && types(root.get("type")).iter().all(|word| word == "object");
    Ok(Rewritten {
        text: rewriter.writer.into_text(),
        is_empty_object,
        losses: rewriter.losses,
    })
}

/// The keywords of a schema, those of what it refers to included.
type Keywords<'t> = Vec<(Cow<'t, str>, View<'t>)>;

struct Rewriter<'t> {
    tape: &'t Tape<'t>,
    writer: Writer,
    losses: Vec<Loss>,
    /// References that are being written out.
    following: Vec<Cow<'t, str>>,
    left: usize,
}

impl<'t> Rewriter<'t> {
    fn lose(&mut self, view: View<'t>, label: &'static str, reason: &'static str) {
        self.losses.push(Loss {
            place: view.pointer(),
            label,
            reason,
        });
    }

    fn schema(&mut self, view: View<'t>) -> Result<(), Refusal> {
        self.left = self.left.checked_sub(1).ok_or(Refusal::TooLarge)?;
        if view.kind() != Kind::Object {
            self.lose(view, "schema_any", "a schema for anything is one for text");
            self.writer.raw(r#"{"type":"STRING"}"#);
            return Ok(());
        }
        let outside = self.following.len();
        let mut keywords = Vec::new();
        self.collect(view, &mut keywords)?;
        self.writer.begin_object();
        self.write_type(view, &keywords);
        for (name, value) in &keywords {
            self.keyword(name, *value, &keywords)?;
        }
        self.writer.end_object();
        self.following.truncate(outside);
        Ok(())
    }

    /// Gathers the keywords of a schema, of what it refers to, and of all it has to fulfil.
    fn collect(&mut self, view: View<'t>, keywords: &mut Keywords<'t>) -> Result<(), Refusal> {
        self.left = self.left.checked_sub(1).ok_or(Refusal::TooLarge)?;
        for (key, value) in view.entries() {
            let name = key.as_str_lossy().unwrap_or_default();
            match name.as_ref() {
                "$ref" | "allOf" | "$defs" | "definitions" => {}
                _ if keywords.iter().any(|(known, _)| *known == name) => self.lose(
                    value,
                    "schema_all_of",
                    "two schemas that both hold say different things here",
                ),
                _ => keywords.push((name, value)),
            }
        }
        if let Some(reference) = view.get("$ref") {
            let pointer = reference.as_str().unwrap_or_default();
            if self.following.contains(&pointer) {
                return Err(Refusal::Recursive);
            }
            let target = pointer
                .strip_prefix('#')
                .and_then(|at| self.tape.resolve(at));
            self.following.push(pointer);
            match target {
                Some(target) => self.collect(target, keywords)?,
                None => self.lose(reference, "schema_ref", "the reference leads nowhere"),
            }
        }
        for part in view.get("allOf").into_iter().flat_map(View::items) {
            self.collect(part, keywords)?;
        }
        Ok(())
    }

    /// Writes `type` and `nullable`: types are single here, and absence is a flag.
    fn write_type(&mut self, view: View<'t>, keywords: &Keywords<'t>) {
        let mut words = types(find(keywords, "type"));
        let listed = find(keywords, "enum").is_some() || find(keywords, "const").is_some();
        let absent = words.len();
        words.retain(|word| word != "null");
        let null_among = |name| {
            let values = find(keywords, name).into_iter().flat_map(View::items);
            values.into_iter().any(is_null_schema)
        };
        let nullable = absent != words.len()
            || find(keywords, "enum").is_some_and(|list| list.items().any(View::is_null))
            || null_among("anyOf")
            || null_among("oneOf");
        let choice = find(keywords, "anyOf")
            .or(find(keywords, "oneOf"))
            .is_some();
        match words.as_slice() {
            // Only text can be one of a list.
            _ if listed => self.single("STRING"),
            [word] => self.single(&word.to_ascii_uppercase()),
            [] if choice => {}
            [] if find(keywords, "properties").is_some() => self.single("OBJECT"),
            [] if find(keywords, "items").is_some() => self.single("ARRAY"),
            [] => {
                self.lose(view, "schema_any", "a schema for anything is one for text");
                self.single("STRING");
            }
            several => {
                self.writer.key("anyOf");
                self.writer.begin_array();
                for word in several {
                    self.writer.begin_object();
                    self.single(&word.to_ascii_uppercase());
                    self.writer.end_object();
                }
                self.writer.end_array();
                if choice {
                    self.lose(
                        view,
                        "schema_any_of",
                        "several types and a choice exclude each other",
                    );
                }
            }
        }
        if nullable && find(keywords, "nullable").is_none() {
            self.writer.key("nullable");
            self.writer.raw("true");
        }
        let array = matches!(words.as_slice(), [word] if word == "array") && !listed;
        if array && find(keywords, "items").is_none_or(|items| items.kind() != Kind::Object) {
            self.lose(view, "schema_any", "a list of anything is one of texts");
            self.writer.key("items");
            self.writer.raw(r#"{"type":"STRING"}"#);
        }
    }

    fn single(&mut self, word: &str) {
        self.writer.key("type");
        self.writer.string(word);
    }

    fn keyword(
        &mut self,
        name: &str,
        value: View<'t>,
        keywords: &Keywords<'t>,
    ) -> Result<(), Refusal> {
        match name {
            "type" => {}
            _ if SAME.contains(&name) => {
                self.writer.key(name);
                self.writer.raw(value.raw());
            }
            "properties" => self.properties(value)?,
            "items" if value.kind() == Kind::Object => {
                self.writer.key("items");
                self.schema(value)?;
            }
            "anyOf" => self.choice(value, keywords)?,
            "oneOf" if find(keywords, "anyOf").is_none() => {
                self.lose(value, "schema_one_of", "exactly one becomes at least one");
                self.choice(value, keywords)?;
            }
            "enum" => self.listed(value, value.items()),
            "const" => self.listed(value, std::iter::once(value)),
            "format" => self.format(value, keywords),
            "exclusiveMinimum" | "exclusiveMaximum" => self.bound(name, value, keywords),
            _ => self.lose(
                value,
                "schema_keyword",
                "the model refuses this word of JSON Schema",
            ),
        }
        Ok(())
    }

    fn properties(&mut self, value: View<'t>) -> Result<(), Refusal> {
        self.writer.key("properties");
        self.writer.begin_object();
        for (key, property) in value.entries() {
            self.writer.key(&key.as_str_lossy().unwrap_or_default());
            self.schema(property)?;
        }
        self.writer.end_object();
        Ok(())
    }

    fn choice(&mut self, value: View<'t>, keywords: &Keywords<'t>) -> Result<(), Refusal> {
        let mut words = types(find(keywords, "type"));
        words.retain(|word| word != "null");
        if words.len() > 1 {
            return Ok(());
        }
        self.writer.key("anyOf");
        self.writer.begin_array();
        for option in value.items().filter(|option| !is_null_schema(*option)) {
            self.schema(option)?;
        }
        self.writer.end_array();
        Ok(())
    }

    /// Writes a list of values; they have to be texts, and `null` is a flag.
    fn listed(&mut self, whole: View<'t>, values: impl Iterator<Item = View<'t>>) {
        let mut respelled = false;
        self.writer.key("enum");
        self.writer.begin_array();
        for value in values.filter(|value| !value.is_null()) {
            match value.as_str() {
                Some(text) => self.writer.string(&text),
                None => {
                    respelled = true;
                    self.writer.string(value.raw());
                }
            }
        }
        self.writer.end_array();
        if respelled {
            self.lose(whole, "enum_as_text", "only texts can be listed");
        }
    }

    fn format(&mut self, value: View<'t>, keywords: &Keywords<'t>) {
        let word = value.as_str().unwrap_or_default();
        let known = match types(find(keywords, "type")).first().map(AsRef::as_ref) {
            Some("integer" | "number") => matches!(&*word, "int32" | "int64" | "float" | "double"),
            _ => matches!(&*word, "enum" | "date-time"),
        };
        if known {
            self.writer.key("format");
            self.writer.raw(value.raw());
        } else {
            self.lose(value, "schema_format", "the model refuses this format");
        }
    }

    /// Writes a bound that excludes its value as one that includes it, or the next integer.
    fn bound(&mut self, name: &str, value: View<'t>, keywords: &Keywords<'t>) {
        let (inclusive, step) = match name {
            "exclusiveMinimum" => ("minimum", 1),
            _ => ("maximum", -1),
        };
        if value.kind() != Kind::Number || find(keywords, inclusive).is_some() {
            self.lose(
                value,
                "schema_exclusive_bound",
                "the model has inclusive bounds only",
            );
            return;
        }
        let integer = types(find(keywords, "type"))
            .iter()
            .any(|word| word == "integer");
        let next = value.as_i64().and_then(|bound| bound.checked_add(step));
        self.writer.key(inclusive);
        match next.filter(|_| integer) {
            Some(next) => self.writer.raw(&next.to_string()),
            None => {
                self.writer.raw(value.raw());
                self.lose(
                    value,
                    "schema_exclusive_bound",
                    "the model has inclusive bounds only",
                );
            }
        }
    }
}

fn find<'t>(keywords: &Keywords<'t>, name: &str) -> Option<View<'t>> {
    keywords
        .iter()
        .find_map(|(known, value)| (known == name).then_some(*value))
}

/// The words of `type`, which is one or a list.
fn types(value: Option<View<'_>>) -> Vec<Cow<'_, str>> {
    let Some(value) = value else {
        return Vec::new();
    };
    let single = value.as_str();
    value
        .items()
        .filter_map(View::as_str)
        .chain(single)
        .collect()
}

fn is_null_schema(view: View<'_>) -> bool {
    view.get("type").and_then(View::as_str).as_deref() == Some("null")
}
