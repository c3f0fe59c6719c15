//! What a program in a sandbox sees and can do.

use std::fs;
use std::net::TcpListener;

use abp_sandbox::{EngineChoice, Exit, Network, SandboxRequest};

use crate::support::{kernel, lacks_namespaces, request, run};

#[tokio::test]
async fn a_program_sees_the_system_its_workspace_and_nothing_else() {
    if lacks_namespaces("the view of a sandbox") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let workspace = place.path().canonicalize().unwrap().join("work");
    fs::create_dir(&workspace).unwrap();
    fs::write(workspace.join("file"), "content").unwrap();
    let script = "cat file; echo new > made; ls -A /; ls -A /dev; hostname; echo $$; \
                  tail -n +3 /proc/net/dev | cut -d: -f1";
    let (exit, output, errors) = run(&request(&workspace), script).await.unwrap();
    println!("{output}\n{errors}");
    assert_eq!(exit, Exit::Code(0), "{errors}");
    assert_eq!(fs::read_to_string(workspace.join("made")).unwrap(), "new\n");
    let seen: Vec<&str> = output
        .strip_prefix("content")
        .unwrap()
        .split_whitespace()
        .collect();
    for absent in ["boot", "mnt", "run", "sys", "kmsg", "mem", "vda", "eth0"] {
        assert!(!seen.contains(&absent), "{absent} is seen");
    }
    for present in [
        "dev", "etc", "proc", "tmp", "usr", "null", "sandbox", "2", "lo",
    ] {
        assert!(seen.contains(&present), "{present} is missing");
    }
}

/// What ordinary programs need is there under Landlock alone, too.
#[tokio::test]
async fn a_program_can_work_under_landlock_alone() {
    let kernel = kernel();
    if let Err(reason) = kernel.landlock.map(drop).and(kernel.seccomp) {
        return abp_testkit::skip("work under Landlock", &reason);
    }
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    let [workspace, scratch] = ["work", "scratch"].map(|name| place.join(name));
    for directory in [&workspace, &scratch] {
        fs::create_dir(directory).unwrap();
    }
    let request = SandboxRequest {
        engine: EngineChoice::Landlock,
        scratch_dir: Some(scratch.clone()),
        ..request(&workspace)
    };
    let script = "set -e; mkdir d; echo 1 > d/a; mv d/a b; cp b c; ln b e; rm e; cat c; \
                  echo 2 > \"$TMPDIR/t\"; cat \"$TMPDIR/t\"; echo \"$HOME\"; ls / >/dev/null 2>&1 || echo no root; \
                  head -c 2 /dev/zero | wc -c; echo x > /dev/null; (sleep 0.01 & wait); [ -r /proc/self/stat ]";
    let (exit, output, errors) = run(&request, script).await.unwrap();
    assert_eq!(exit, Exit::Code(0), "{errors}");
    let expected = format!("1\n2\n{}\nno root\n2\n", scratch.display());
    assert_eq!(output, expected);
}

/// Rules often name a directory and something in it.
#[tokio::test]
async fn paths_inside_of_held_paths_open_no_hole() {
    if lacks_namespaces("held paths in held paths") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let workspace = place.path().canonicalize().unwrap().join("work");
    for path in ["read/a/b/file", "read/a/secret", "gone/a/b/file"] {
        let path = workspace.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "content").unwrap();
    }
    let paths = |paths: &[&str]| paths.iter().map(|path| workspace.join(path)).collect();
    let request = SandboxRequest {
        protected: paths(&["read/a/b/file", "read", "gone/a/b"]),
        concealed: paths(&["read/a/secret", "gone"]),
        ..request(&workspace)
    };
    let script = "touch read/made read/a/made read/a/b/made; cat read/a/secret; ls -A gone; cat read/a/b/file";
    let (_, output, errors) = run(&request, script).await.unwrap();
    assert_eq!(output, "content", "{errors}");
    for made in ["read/made", "read/a/made", "read/a/b/made"] {
        assert!(!workspace.join(made).exists(), "{made}");
    }
}

/// One of the gaps of Landlock alone: its rules have ports and no addresses.
#[tokio::test]
async fn landlock_alone_opens_the_port_of_the_proxy_on_every_host() {
    let kernel = kernel();
    if let Err(reason) = kernel.landlock.map(drop).and(kernel.seccomp) {
        return abp_testkit::skip("the proxy's port under Landlock", &reason);
    }
    let place = tempfile::tempdir().unwrap();
    let workspace = place.path().canonicalize().unwrap().join("work");
    fs::create_dir(&workspace).unwrap();
    let [other_host, other_port] =
        ["127.0.0.2:0", "127.0.0.1:0"].map(|address| TcpListener::bind(address).unwrap());
    let port = other_host.local_addr().unwrap().port();
    let request = SandboxRequest {
        engine: EngineChoice::Landlock,
        network: Network::Proxied(port),
        ..request(&workspace)
    };
    for (address, can_connect) in [
        (other_host.local_addr().unwrap(), true),
        (other_port.local_addr().unwrap(), false),
    ] {
        let script = format!(
            "exec bash -c 'exec 3<>/dev/tcp/{}/{}'",
            address.ip(),
            address.port()
        );
        let (exit, _, errors) = run(&request, &script).await.unwrap();
        assert_eq!(exit == Exit::Code(0), can_connect, "{address}: {errors}");
    }
}

/// Families of sockets, each tried as an attack would: towards a listener of the machine, or by being opened.
#[tokio::test]
async fn d19_no_socket_of_any_family_leads_out() {
    if lacks_namespaces("socket families") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    let workspace = place.join("work");
    fs::create_dir(&workspace).unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_nonblocking(true).unwrap();
    tcp.set_nonblocking(true).unwrap();
    let unix = std::os::unix::net::UnixListener::bind(place.join("docker.sock")).unwrap();
    unix.set_nonblocking(true).unwrap();
    let script = format!(
        r#"exec python3 - <<'PYTHON'
import ctypes, socket
def attempt(name, do):
    try:
        do()
        print(name)
    except OSError:
        pass
def talk(family, kind, address):
    peer = socket.socket(family, kind)
    peer.settimeout(1)
    peer.connect(address)
    peer.send(b"x")
attempt("tcp", lambda: talk(2, 1, ("127.0.0.1", {tcp})))
attempt("dns", lambda: talk(2, 2, ("192.0.2.53", 53)))
attempt("unix", lambda: talk(1, 1, "{unix}"))
talked = socket.socket(2, 2)
try:
    talked.sendto(b"secret", ("127.0.0.1", {udp}))
except OSError:
    pass
for name, family, kind, protocol in [("raw", 2, 3, 1), ("packet", 17, 3, 768), ("vsock", 40, 1, 0),
        ("netlink", 16, 3, 15), ("bluetooth", 31, 3, 1), ("alg", 38, 5, 0), ("xdp", 44, 3, 0), ("rds", 21, 5, 0)]:
    attempt(name, lambda: socket.socket(family, kind, protocol))
def io_uring():
    if ctypes.CDLL(None, use_errno=True).syscall(425, 1, ctypes.create_string_buffer(120)) < 0:
        raise OSError
attempt("io_uring", io_uring)
print("end")
PYTHON"#,
        tcp = tcp.local_addr().unwrap().port(),
        udp = udp.local_addr().unwrap().port(),
        unix = place.join("docker.sock").display(),
    );
    let (exit, output, errors) = run(&request(&workspace), &script).await.unwrap();
    assert_eq!((exit, &*output), (Exit::Code(0), "end\n"), "{errors}");
    assert!(tcp.accept().is_err() && unix.accept().is_err());
    assert!(udp.recv(&mut [0; 8]).is_err(), "nothing arrived");
}
