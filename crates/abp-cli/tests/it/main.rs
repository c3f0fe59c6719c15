//! The `abp` command, as a user runs it.

mod bad_input;
mod desk;
mod first_run;
mod plans;
mod signals;
