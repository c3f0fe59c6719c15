//! The console: the pages that `abp serve` shows at `/console`.
//!
//! The pages are plain ES modules, compiled into the program as they are written: nothing is built, so what
//! a browser gets is the source, and nobody needs Node to build `abp`. They use public endpoints only. The
//! two libraries they use are files of [`FILES`], unchanged but for one import; the tests pin their hashes.
//!
//! The receipt verifier is one module without imports. [`verifier_page`] puts it into one document that
//! works from a file, without a server.

/// A file of the console.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConsoleFile {
    /// Its name below `/console/`; empty for the page itself.
    pub name: &'static str,
    /// Its media type.
    pub media_type: &'static str,
    /// Its content.
    pub bytes: &'static [u8],
}

/// The content security policy of every file: scripts, styles and requests of the same origin only, nothing
/// inline, and no frame around it.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                          img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const SCRIPT: &str = "text/javascript; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

macro_rules! files {
    ($($name:literal as $media_type:expr,)*) => {
        &[$(ConsoleFile {
            name: $name,
            media_type: $media_type,
            bytes: include_bytes!(concat!("../assets/", $name)),
        }),*]
    };
}

/// The page at `/console`.
pub const INDEX: ConsoleFile = ConsoleFile {
    name: "",
    media_type: "text/html; charset=utf-8",
    bytes: include_bytes!("../assets/index.html"),
};

/// Every file below `/console/`.
pub const FILES: &[ConsoleFile] = files! {
    "LICENSE-htm.txt" as TEXT,
    "LICENSE-preact.txt" as TEXT,
    "api.js" as SCRIPT,
    "app.js" as SCRIPT,
    "approvals.js" as SCRIPT,
    "capabilities.js" as SCRIPT,
    "diff.js" as SCRIPT,
    "gateway.js" as SCRIPT,
    "hooks.mjs" as SCRIPT,
    "htm.mjs" as SCRIPT,
    "icon.svg" as "image/svg+xml",
    "keys.js" as SCRIPT,
    "markdown.js" as SCRIPT,
    "mcp.js" as SCRIPT,
    "preact.mjs" as SCRIPT,
    "receipt.js" as SCRIPT,
    "run.js" as SCRIPT,
    "runs.js" as SCRIPT,
    "style.css" as "text/css; charset=utf-8",
    "system.js" as SCRIPT,
    "timeline.js" as SCRIPT,
    "translate.js" as SCRIPT,
    "ui.js" as SCRIPT,
    "verify.js" as SCRIPT,
};

/// The verifier as one document that needs no server and makes no request.
#[must_use]
pub fn verifier_page() -> String {
    let page = include_str!("../assets/verifier.html");
    let module = include_str!("../assets/verify.js");
    let script = include_str!("../assets/verifier.js");
    let is_kept = |line: &&str| !line.starts_with("import ") && !line.starts_with("export {");
    let mut code = String::with_capacity(module.len() + script.len());
    for line in module.lines().chain(script.lines()).filter(is_kept) {
        code.push_str(line);
        code.push('\n');
    }
    page.replace("/*SCRIPT*/", &code)
}
