//! Filters of system calls: what no build, test or agent needs, and what has led out of sandboxes.
//!
//! Two filters, because a filter has one answer for all it matches: most calls fail with `EPERM`; `clone3`
//! fails with `ENOSYS`, because its flags lie in memory where a filter cannot see them, and every program
//! then uses `clone`, whose flags can be seen.
//!
//! On x86-64 each number is also matched with the bit of the x32 interface, which is another way to call
//! the same function. Programs of another architecture (32 bit) are killed at their first call.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

use crate::plan::{Engine, Network, SandboxPlan};

/// Calls that fail whatever their arguments are.
const DENIED: &[i64] = &[
    // Mounts and roots.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    OPEN_TREE_ATTR,
    libc::SYS_mount_setattr,
    // Namespaces; `clone` is judged by its flags.
    libc::SYS_unshare,
    libc::SYS_setns,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Keys.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // The kernel's own machinery.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_fanotify_init,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
];
/// `open_tree_attr`, a call of Linux 6.15, with the same number on every architecture.
const OPEN_TREE_ATTR: i64 = 467;
/// Calls that lead to other programs of the machine where there is no IPC namespace.
const DENIED_ON_MACHINE: &[i64] = &[
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];
/// Calls that send, with the argument that has their flags.
const SENDING: [(i64, u8); 3] = [
    (libc::SYS_sendto, 3),
    (libc::SYS_sendmsg, 2),
    (libc::SYS_sendmmsg, 3),
];
/// Calls that only x86-64 has.
#[cfg(target_arch = "x86_64")]
const DENIED_HERE: &[i64] = &[
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_uselib,
    libc::SYS_modify_ldt,
];
#[cfg(not(target_arch = "x86_64"))]
const DENIED_HERE: &[i64] = &[];

/// The bit that marks a call of the x32 interface.
const X32: i64 = 0x4000_0000;
/// Calls that have numbers of their own in the x32 interface: `ptrace`, `process_vm_readv` and `_writev`,
/// `kexec_load`, `ioctl`, `io_setup` and `_submit` are among 512 to 547. No program uses that interface.
const X32_ONLY: std::ops::RangeInclusive<i64> = 512..=547;

/// Flags of `clone` that make a namespace.
const NAMESPACES: [i32; 8] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWCGROUP,
    0x80, // CLONE_NEWTIME
];
/// Requests of `ioctl` that type into a terminal.
const TYPING: [u64; 2] = [
    0x5412, // TIOCSTI
    0x541C, // TIOCLINUX
];
/// Families of sockets that may be opened.
const FAMILIES: [i32; 4] = [
    libc::AF_UNIX,
    libc::AF_INET,
    libc::AF_INET6,
    libc::AF_NETLINK,
];
/// A type of sockets older than `AF_PACKET`, with the same use.
const SOCK_PACKET: i32 = 10;
/// The part of a socket's type that is not a flag.
const TYPE_MASK: u64 = 0xf;

/// The part of the machine that a program shares with others, which its filter depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Surroundings {
    /// None: it is in namespaces of its own.
    Own,
    /// Everything, the network included.
    Machine,
    /// Everything, and the ports that Landlock grants. Landlock judges `connect` of TCP sockets and nothing
    /// else, so other protocols, and connections that begin with data, are the filter's matter.
    MachinePorts,
}

/// Applies both filters to this process and everything it will start.
///
/// # Errors
/// Fails where the kernel refuses a filter.
pub(super) fn restrict(plan: &SandboxPlan) -> Result<(), String> {
    apply(match (plan.engine(), plan.network()) {
        (Engine::Namespaces, _) => Surroundings::Own,
        (Engine::Landlock, Network::Open) => Surroundings::Machine,
        (Engine::Landlock, Network::Closed | Network::Proxied(_)) => Surroundings::MachinePorts,
    })
}

/// Tries the filters on this process, which has to end afterwards.
pub(super) fn probe() -> Result<(), String> {
    apply(Surroundings::MachinePorts)
}

fn apply(surroundings: Surroundings) -> Result<(), String> {
    let cannot = |error: &dyn std::fmt::Display| format!("seccomp: {error}");
    let filters = filters(surroundings).map_err(|error| cannot(&error))?;
    for filter in filters {
        apply_filter(&filter).map_err(|error| cannot(&error))?;
    }
    Ok(())
}

fn filters(surroundings: Surroundings) -> Result<[BpfProgram; 2], seccompiler::BackendError> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    let build = |rules: BTreeMap<i64, Vec<SeccompRule>>, errno: i32| {
        let answer = SeccompAction::Errno(errno.unsigned_abs());
        SeccompFilter::new(rules, SeccompAction::Allow, answer, architecture)?.try_into()
    };
    let unseen = with_x32([(libc::SYS_clone3, Vec::new())]);
    Ok([
        build(denied(surroundings)?, libc::EPERM)?,
        build(unseen, libc::ENOSYS)?,
    ])
}

fn denied(
    surroundings: Surroundings,
) -> Result<BTreeMap<i64, Vec<SeccompRule>>, seccompiler::BackendError> {
    let always = DENIED.iter().chain(DENIED_HERE);
    let mut rules: Vec<(i64, Vec<SeccompRule>)> =
        always.map(|number| (*number, Vec::new())).collect();
    let flags = NAMESPACES.map(|flag| u64::from(flag.unsigned_abs()));
    let makes_namespace = flags.map(|flag| when(0, SeccompCmpOp::MaskedEq(flag), flag));
    rules.push((libc::SYS_clone, any(makes_namespace)?));
    let types_in = TYPING.map(|request| when(1, SeccompCmpOp::Eq, request));
    rules.push((libc::SYS_ioctl, any(types_in)?));
    rules.push((libc::SYS_socket, sockets(surroundings)?));
    rules.push((libc::SYS_socketpair, socket_pairs(surroundings)?));
    match surroundings {
        Surroundings::Own => {}
        Surroundings::Machine | Surroundings::MachinePorts => rules.extend(machine_rules()?),
    }
    let mut rules = with_x32(rules);
    if cfg!(target_arch = "x86_64") {
        rules.extend(X32_ONLY.map(|number| (number | X32, Vec::new())));
    }
    Ok(rules)
}

/// Other processes of the user, and connections that begin with data.
fn machine_rules() -> Result<Vec<(i64, Vec<SeccompRule>)>, seccompiler::BackendError> {
    let mut rules: Vec<_> = DENIED_ON_MACHINE
        .iter()
        .map(|number| (*number, Vec::new()))
        .collect();
    let others = when(0, SeccompCmpOp::Ne, 0);
    rules.push((libc::SYS_prlimit64, vec![all([others])?]));
    let with_data = number(libc::MSG_FASTOPEN);
    for (call, flags) in SENDING {
        let connects = when(flags, SeccompCmpOp::MaskedEq(with_data), with_data);
        rules.push((call, vec![all([connects])?]));
    }
    Ok(rules)
}

/// Unknown families. Where services of the machine can be seen, also pairs that can send to others than
/// each other.
fn socket_pairs(surroundings: Surroundings) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let mut rules = vec![all(
        FAMILIES.map(|family| when(0, SeccompCmpOp::Ne, number(family)))
    )?];
    if surroundings != Surroundings::Own {
        for loose in [libc::SOCK_DGRAM, libc::SOCK_RAW] {
            rules.push(all([family(libc::AF_UNIX), kind(loose)])?);
        }
    }
    Ok(rules)
}

fn family(family: i32) -> Condition {
    when(0, SeccompCmpOp::Eq, number(family))
}

fn kind(kind: i32) -> Condition {
    when(1, SeccompCmpOp::MaskedEq(TYPE_MASK), number(kind))
}

/// Unknown families, raw sockets, and netlink beyond routes. Where services of the machine can be seen,
/// also local sockets: their addresses are paths, which neither this filter nor Landlock judges.
fn sockets(surroundings: Surroundings) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let mut rules = vec![
        all(FAMILIES.map(|family| when(0, SeccompCmpOp::Ne, number(family))))?,
        all([
            family(libc::AF_NETLINK),
            when(2, SeccompCmpOp::Ne, number(libc::NETLINK_ROUTE)),
        ])?,
    ];
    for internet in [libc::AF_INET, libc::AF_INET6] {
        for raw in [libc::SOCK_RAW, SOCK_PACKET, libc::SOCK_DCCP, libc::SOCK_RDM] {
            rules.push(all([family(internet), kind(raw)])?);
        }
        if surroundings == Surroundings::MachinePorts {
            for other in [libc::SOCK_DGRAM, libc::SOCK_SEQPACKET] {
                rules.push(all([family(internet), kind(other)])?);
            }
            rules.push(all([
                family(internet),
                when(2, SeccompCmpOp::Ne, 0),
                when(2, SeccompCmpOp::Ne, number(libc::IPPROTO_TCP)),
            ])?);
        }
    }
    if surroundings != Surroundings::Own {
        rules.push(all([family(libc::AF_UNIX)])?);
    }
    Ok(rules)
}

type Condition = Result<SeccompCondition, seccompiler::BackendError>;

/// A condition on the lower half of an argument: the kernel looks at no more of these.
fn when(argument: u8, operator: SeccompCmpOp, value: u64) -> Condition {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
}

fn all<const N: usize>(
    conditions: [Condition; N],
) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(conditions.into_iter().collect::<Result<_, _>>()?)
}

fn any<const N: usize>(
    conditions: [Condition; N],
) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    conditions
        .into_iter()
        .map(|condition| all([condition]))
        .collect()
}

fn number(value: i32) -> u64 {
    u64::from(value.unsigned_abs())
}

fn with_x32(
    rules: impl IntoIterator<Item = (i64, Vec<SeccompRule>)>,
) -> BTreeMap<i64, Vec<SeccompRule>> {
    let copies = |(number, rules): (i64, Vec<SeccompRule>)| {
        let x32 = cfg!(target_arch = "x86_64").then(|| (number | X32, rules.clone()));
        [Some((number, rules)), x32].into_iter().flatten()
    };
    rules.into_iter().flat_map(copies).collect()
}
