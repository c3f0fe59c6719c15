//! Negotiation, emulation and choice, through their public interfaces.

mod documented_api;
mod negotiation;
mod selection;
