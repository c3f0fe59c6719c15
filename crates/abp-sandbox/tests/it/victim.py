"""A process outside the sandbox, with everything that a program inside could get hold of.

Prints how to reach it, answers whoever does, and counts them. Ends with its standard input."""

import ctypes
import json
import os
import selectors
import socket
import sys

libc = ctypes.CDLL(None, use_errno=True)
directory = sys.argv[1]
name = f"abp-victim-{os.getpid()}"
key = 0x41425000 + os.getpid()
IPC_CREAT, IPC_RMID = 0o1000, 0
segment = libc.shmget(key, 4096, IPC_CREAT | 0o600)
queue = libc.mq_open(f"/{name}".encode(), os.O_CREAT | os.O_RDWR, 0o600, None)
shared = f"/dev/shm/{name}"
with open(shared, "w") as file:
    file.write("canary")


def listening(family, kind, address):
    opened = socket.socket(family, kind)
    opened.bind(address)
    if kind == socket.SOCK_STREAM:
        opened.listen()
    return opened


def any_address():
    """An address of this machine that is not the loopback's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"


address = any_address()
inet, unix, stream, datagram = (
    socket.AF_INET,
    socket.AF_UNIX,
    socket.SOCK_STREAM,
    socket.SOCK_DGRAM,
)
listeners = {
    "tcp": listening(inet, stream, ("127.0.0.1", 0)),
    "tcp_address": listening(inet, stream, (address, 0)),
    "udp": listening(inet, datagram, ("127.0.0.1", 0)),
    "abstract": listening(unix, stream, f"\0{name}"),
    "path": listening(unix, stream, f"{directory}/stream"),
    "path_datagram": listening(unix, datagram, f"{directory}/datagram"),
}
if socket.has_ipv6:
    try:
        listeners["tcp6"] = listening(socket.AF_INET6, stream, ("::1", 0))
    except OSError:
        pass
selector = selectors.DefaultSelector()
selector.register(sys.stdin, selectors.EVENT_READ)
for opened in listeners.values():
    selector.register(opened, selectors.EVENT_READ)
port = lambda which: listeners[which].getsockname()[1] if which in listeners else 9
print(
    json.dumps(
        {
            "pid": os.getpid(),
            "key": key,
            "queue": f"/{name}",
            "shared": shared,
            "tcp": port("tcp"),
            "tcp6": port("tcp6"),
            "udp": port("udp"),
            "address": address,
            "address_port": port("tcp_address"),
            "abstract": name,
            "stream": f"{directory}/stream",
            "datagram": f"{directory}/datagram",
        }
    ),
    flush=True,
)
contacts = []
while sys.stdin not in (ready := [key.fileobj for key, _ in selector.select()]):
    for opened in ready:
        which = next(name for name, one in listeners.items() if one is opened)
        contacts.append(which)
        if opened.type == stream:
            with opened.accept()[0] as connection:
                connection.sendall(b"reached")
        else:
            _, peer = opened.recvfrom(100)
            if peer:
                opened.sendto(b"reached", peer)
libc.shmctl(segment, IPC_RMID, None)
libc.mq_unlink(f"/{name}".encode())
os.unlink(shared)
print(json.dumps(contacts))
