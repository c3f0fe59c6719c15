//! The arguments of `abp upstreams`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::key_value;

#[derive(Debug, Args)]
pub(crate) struct UpstreamsArgs {
    #[command(subcommand)]
    pub(crate) command: UpstreamsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UpstreamsCommand {
    /// Write an upstream of a known vendor into your configuration.
    #[command(after_help = "Examples:\n  abp upstreams add openrouter\n  \
abp upstreams add ollama --name local --model 'qwen*'\n  \
abp upstreams add azure --set resource=my-resource\n  \
abp upstreams add bedrock-claude --set region=eu-west-1\n\n\
`abp upstreams list --presets` shows the vendors. The file is ~/.config/abp/backplane.toml, or that of --config.")]
    Add(AddUpstreamArgs),
    /// List the configured upstreams, or the vendors that can be added.
    #[command(
        after_help = "Examples:\n  abp upstreams list\n  abp upstreams list --presets --json"
    )]
    List {
        /// The vendors that `abp upstreams add` knows.
        #[arg(long)]
        presets: bool,
    },
    /// Take an upstream out of your configuration.
    #[command(after_help = "Example:\n  abp upstreams remove openrouter")]
    Remove {
        /// Its name.
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct AddUpstreamArgs {
    /// The vendor, as `abp upstreams list --presets` shows it.
    #[arg(value_name = "VENDOR")]
    pub(crate) preset: String,
    /// What the upstream is called [default: the vendor's name].
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// A model or a pattern that it is asked for; several are possible [default: the vendor's].
    #[arg(long = "model", value_name = "PATTERN")]
    pub(crate) models: Vec<String>,
    /// The environment variable that holds the key [default: the vendor's usual one].
    #[arg(long, value_name = "VARIABLE", conflicts_with = "key_file")]
    pub(crate) key_env: Option<String>,
    /// The file that holds the key.
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Another address than the vendor's.
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// A part of the address that only you know, such as a region.
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = key_value)]
    pub(crate) values: Vec<(String, String)>,
}
