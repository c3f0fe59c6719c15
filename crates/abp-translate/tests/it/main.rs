//! Tests of the translation hub.

#[cfg(test)]
mod agents;
#[cfg(test)]
mod bounds;
#[cfg(test)]
mod endings;
#[cfg(test)]
mod families;
#[cfg(test)]
mod features;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod ids;
#[cfg(test)]
mod late;
#[cfg(test)]
mod mutation;
#[cfg(test)]
mod reasoning;
#[cfg(test)]
mod rows;
#[cfg(test)]
mod stops;
#[cfg(test)]
mod watch;
