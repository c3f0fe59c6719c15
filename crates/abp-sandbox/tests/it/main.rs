//! Real programs in real sandboxes.

#[cfg(test)]
mod cves;
#[cfg(test)]
mod escapes;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod overlay;
#[cfg(test)]
mod sandbox;
#[cfg(test)]
mod support;
