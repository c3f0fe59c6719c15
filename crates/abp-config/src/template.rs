//! Files to start from.

/// A commented file for users and operators. It loads without warnings.
#[must_use]
pub const fn template() -> &'static str {
    include_str!("template.toml")
}

/// A commented file for a repository. It loads without warnings.
#[must_use]
pub const fn project_template() -> &'static str {
    include_str!("template_project.toml")
}
