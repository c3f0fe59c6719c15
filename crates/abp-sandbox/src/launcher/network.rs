//! The network of a sandbox: a loopback interface, and one listener on it that the host serves.

use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsFd;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

use super::send_descriptors;
use crate::plan::{Network, SandboxPlan};

/// The number of the loopback interface in every network namespace.
const LOOPBACK: i32 = 1;
/// `RTM_NEWLINK`: change an interface.
const NEW_LINK: u16 = 16;
/// `NLM_F_REQUEST | NLM_F_ACK`.
const REQUEST_WITH_ANSWER: u16 = 5;
/// `NLMSG_ERROR`: an answer, which is good where its number is 0.
const ANSWER: u16 = 2;
/// `IFF_UP`.
const UP: u32 = 1;

/// Raises the loopback interface, and gives the host the listener where the plan has one.
pub(super) fn settle(plan: &SandboxPlan, channel: Option<impl AsFd>) -> Result<(), String> {
    let port = match plan.network() {
        Network::Open => return Ok(()),
        Network::Closed => None,
        Network::Proxied(port) => Some(port),
    };
    raise_loopback().map_err(|error| format!("cannot raise the loopback interface: {error}"))?;
    let (Some(port), Some(channel)) = (port, channel) else {
        return Ok(());
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .map_err(|error| format!("cannot listen in the network namespace: {error}"))?;
    send_descriptors(channel, &[listener.as_fd()])
        .map_err(|error| format!("cannot hand over the listener: {error}"))
}

fn raise_loopback() -> rustix::io::Result<()> {
    let flags = SocketFlags::CLOEXEC;
    let kind = SocketType::RAW;
    // Protocol 0 of this family is about interfaces and routes.
    let socket = socket_with(AddressFamily::NETLINK, kind, flags, None)?;
    send(&socket, &up_message(), SendFlags::empty())?;
    let mut answer = [0; 512];
    let (length, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
    let refused = || rustix::io::Errno::PROTO;
    let answer = answer.get(..length).ok_or_else(refused)?;
    let kind = answer.get(4..6).ok_or_else(refused)?;
    let number = answer.get(16..20).and_then(|bytes| bytes.try_into().ok());
    let number = i32::from_ne_bytes(number.ok_or_else(refused)?);
    if kind != ANSWER.to_ne_bytes() {
        return Err(refused());
    }
    match number {
        0 => Ok(()),
        number => Err(rustix::io::Errno::from_raw_os_error(-number)),
    }
}

/// A netlink message: a header of 16 bytes, then an interface message of 16.
fn up_message() -> Vec<u8> {
    const LENGTH: u32 = 32;
    let mut message = Vec::new();
    message.extend(LENGTH.to_ne_bytes());
    message.extend(NEW_LINK.to_ne_bytes());
    message.extend(REQUEST_WITH_ANSWER.to_ne_bytes());
    message.extend(1_u32.to_ne_bytes()); // sequence number
    message.extend(0_u32.to_ne_bytes()); // to the kernel
    message.extend([0; 4]); // any family, any type
    message.extend(LOOPBACK.to_ne_bytes());
    message.extend(UP.to_ne_bytes());
    message.extend(UP.to_ne_bytes()); // the flags to change
    message
}
