//! Sidecars that misbehave in every way, as real processes.

#[cfg(test)]
mod containment;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod floods;
#[cfg(test)]
mod notes;
#[cfg(test)]
mod programs;
#[cfg(test)]
mod state;
#[cfg(test)]
mod support;
