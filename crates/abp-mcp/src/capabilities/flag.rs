//! The flags that capabilities are made of: where each is written, how, and in which versions.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::version::{ProtocolVersion, VersionSpan};

/// One flag of one side: [`ServerFlag`] or [`ClientFlag`].
///
/// Two enums instead of one, so that nobody can ask a server for what only clients declare.
pub trait CapabilityFlag: Copy + Ord + fmt::Debug + fmt::Display + 'static {
    /// Every flag of the side.
    const ALL: &'static [Self];

    /// Where in the capabilities the flag is written.
    fn path(self) -> &'static [&'static str];

    /// How it is written there.
    fn form(self) -> Form;

    /// The versions that have it.
    fn span(self) -> VersionSpan;
}

/// How a flag is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// By an object.
    Object,
    /// By `true`.
    True,
    /// By an object, or by a parent that names neither the flag nor its rival.
    ObjectUnless {
        /// The other member of the parent.
        rival: &'static str,
    },
}

macro_rules! flags {
    (
        $(#[$enum_doc:meta])*
        $public:vis enum $name:ident {
            $($(#[$doc:meta])* $variant:ident = $path:expr, $form:expr, $span:expr;)+
        }
    ) => {
        $(#[$enum_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $public enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl CapabilityFlag for $name {
            const ALL: &'static [Self] = &[$(Self::$variant,)+];

            fn path(self) -> &'static [&'static str] {
                match self { $(Self::$variant => &$path,)+ }
            }

            fn form(self) -> Form {
                match self { $(Self::$variant => $form,)+ }
            }

            fn span(self) -> VersionSpan {
                match self { $(Self::$variant => $span,)+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.path().join("."))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    };
}

const TASKS: VersionSpan = VersionSpan::only(ProtocolVersion::V2025_11_25);

flags! {
    /// What a server may declare.
    pub enum ServerFlag {
        /// It sends log messages.
        Logging = ["logging"], Form::Object, VersionSpan::ALL;
        /// It completes arguments. In 2024-11-05 servers do so without a flag.
        Completions = ["completions"], Form::Object, VersionSpan::since(ProtocolVersion::V2025_03_26);
        /// It has prompts.
        Prompts = ["prompts"], Form::Object, VersionSpan::ALL;
        /// It says when the list of prompts changes.
        PromptsListChanged = ["prompts", "listChanged"], Form::True, VersionSpan::ALL;
        /// It has resources.
        Resources = ["resources"], Form::Object, VersionSpan::ALL;
        /// It says when a resource changes.
        ResourcesSubscribe = ["resources", "subscribe"], Form::True, VersionSpan::ALL;
        /// It says when the list of resources changes.
        ResourcesListChanged = ["resources", "listChanged"], Form::True, VersionSpan::ALL;
        /// It has tools.
        Tools = ["tools"], Form::Object, VersionSpan::ALL;
        /// It says when the list of tools changes.
        ToolsListChanged = ["tools", "listChanged"], Form::True, VersionSpan::ALL;
        /// It has tasks.
        Tasks = ["tasks"], Form::Object, TASKS;
        /// It lists tasks.
        TasksList = ["tasks", "list"], Form::Object, TASKS;
        /// It cancels tasks.
        TasksCancel = ["tasks", "cancel"], Form::Object, TASKS;
        /// A tool call may become a task.
        TasksToolsCall = ["tasks", "requests", "tools", "call"], Form::Object, TASKS;
    }
}

flags! {
    /// What a client may declare.
    pub enum ClientFlag {
        /// It has roots.
        Roots = ["roots"], Form::Object, VersionSpan::ALL;
        /// It says when the list of roots changes.
        RootsListChanged = ["roots", "listChanged"], Form::True, VersionSpan::LEGACY;
        /// It samples from a model.
        Sampling = ["sampling"], Form::Object, VersionSpan::ALL;
        /// Sampling may include the context of servers.
        SamplingContext = ["sampling", "context"], Form::Object,
            VersionSpan::since(ProtocolVersion::V2025_11_25);
        /// Sampling may use tools.
        SamplingTools = ["sampling", "tools"], Form::Object,
            VersionSpan::since(ProtocolVersion::V2025_11_25);
        /// It asks its user.
        Elicitation = ["elicitation"], Form::Object, VersionSpan::since(ProtocolVersion::V2025_06_18);
        /// It asks by a form. `elicitation: {}` means this.
        ElicitationForm = ["elicitation", "form"], Form::ObjectUnless { rival: "url" },
            VersionSpan::since(ProtocolVersion::V2025_06_18);
        /// It sends its user to an address.
        ElicitationUrl = ["elicitation", "url"], Form::Object,
            VersionSpan::since(ProtocolVersion::V2025_11_25);
        /// It has tasks.
        Tasks = ["tasks"], Form::Object, TASKS;
        /// It lists tasks.
        TasksList = ["tasks", "list"], Form::Object, TASKS;
        /// It cancels tasks.
        TasksCancel = ["tasks", "cancel"], Form::Object, TASKS;
        /// Sampling may become a task.
        TasksSampling = ["tasks", "requests", "sampling", "createMessage"], Form::Object, TASKS;
        /// Elicitation may become a task.
        TasksElicitation = ["tasks", "requests", "elicitation", "create"], Form::Object, TASKS;
    }
}
