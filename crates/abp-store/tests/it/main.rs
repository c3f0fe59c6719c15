//! The store against a real disk: its rules, its faults, and other processes.

#[cfg(test)]
mod changes;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod damage;
#[cfg(test)]
mod disk;
#[cfg(test)]
mod erasing;
#[cfg(test)]
mod exchanges;
#[cfg(test)]
mod gateway;
#[cfg(test)]
mod journal;
#[cfg(test)]
mod judging;
#[cfg(test)]
mod lab;
#[cfg(test)]
mod law;
#[cfg(test)]
mod peer;
#[cfg(test)]
mod postgres;
#[cfg(test)]
mod queue;
#[cfg(test)]
mod state_dir;
#[cfg(test)]
mod tampering;
#[cfg(test)]
mod trust;
