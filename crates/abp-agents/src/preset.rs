//! The form of a row of the table: one agent as data.

/// An agent that speaks the Agent Client Protocol, as data.
///
/// Texts of `args`, `env` and `files` may hold `{url}`, `{key}` and `{model}`: the address of the run's gateway,
/// the run's key, and the model to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentPreset {
    /// The backend's name.
    pub name: &'static str,
    /// The product's name.
    pub title: &'static str,
    /// The packages that bring it.
    pub source: PackageSource,
    /// The program to start.
    pub program: AgentProgram,
    /// Its arguments.
    pub args: &'static [&'static str],
    /// Its environment.
    pub env: &'static [(&'static str, &'static str)],
    /// Files of its home directory.
    pub files: &'static [(&'static str, &'static str)],
    /// The model it is asked for where the order names none and no upstream serves one by a plain name.
    pub usual_model: &'static str,
    /// The session mode that is set before the first prompt; `None` leaves the agent's own.
    pub mode: Option<&'static str>,
    /// Whether it asks before it uses a tool, in that mode.
    pub permissions: PermissionBehaviour,
    /// Whether it is offered to read and write files through the host. Some agents write through it, which
    /// puts the policy in front of their writes; Gemini CLI cannot make new files then.
    pub offers_files: bool,
    /// The capabilities that the pinned version tells when it is opened, by their wire names. They are known
    /// before that, so that agents can be compared without starting any.
    pub told: &'static [&'static str],
    /// The capabilities of its tools, by their wire names, from the tools it declares to its model.
    pub tools: &'static [&'static str],
}

/// The packages of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackageSource {
    /// From the registry of npm.
    Npm {
        /// The package.
        package: &'static str,
        /// Its version.
        version: &'static str,
        /// `package.json`.
        manifest: &'static str,
        /// `package-lock.json`: every package with its version and hash.
        lock: &'static str,
    },
}

/// The program of an agent, below its installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentProgram {
    /// A script that Node runs.
    Script(&'static str),
    /// A program of the machine's own; `{arch}` is `x64` or `arm64`.
    Native(&'static str),
}

/// The behaviour of an agent before it uses a tool. Measured for the pinned version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermissionBehaviour {
    /// It asks before it uses these tools, and does not do what is denied. Others it uses without asking.
    AsksFor(&'static [&'static str]),
    /// It asks about nothing.
    NeverAsks,
}

impl PermissionBehaviour {
    /// The tools that it asks about, by the names that policies know them by.
    #[must_use]
    pub const fn asked_tools(self) -> &'static [&'static str] {
        match self {
            Self::AsksFor(tools) => tools,
            Self::NeverAsks => &[],
        }
    }
}

impl AgentPreset {
    /// The pinned version.
    #[must_use]
    pub const fn version(&self) -> &'static str {
        match self.source {
            PackageSource::Npm { version, .. } => version,
        }
    }

    /// The package that brings it.
    #[must_use]
    pub const fn package(&self) -> &'static str {
        match self.source {
            PackageSource::Npm { package, .. } => package,
        }
    }
}
