"""Makes each attempt of a list in a process of its own, and prints what came of it, as JSON.

An attempt that ends without an error has reached what it was after."""

import ctypes
import errno
import json
import mmap
import os
import re
import signal
import socket
import stat
import struct
import subprocess
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)


def is_open(descriptor):
    try:
        return os.fstat(descriptor) is not None
    except OSError:
        return False


# Before this program opens any itself.
inherited = [descriptor for descriptor in range(3, 4096) if is_open(descriptor)]
parent = os.getppid()
with open(sys.argv[1]) as file:
    attempts, place = json.load(file)
# The attempts name what they are after by these.
globals().update(place)
X32 = 0x40000000

# Numbers of x86-64.
NUMBERS = {
    "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "fsopen": 430, "fsconfig": 431,
    "fsmount": 432, "fspick": 433, "move_mount": 429, "open_tree": 428, "mount_setattr": 442,
    "open_tree_attr": 467, "unshare": 272, "clone": 56, "clone3": 435, "setns": 308, "ptrace": 101,
    "process_vm_readv": 310, "process_vm_writev": 311, "process_madvise": 440, "pidfd_open": 434,
    "pidfd_getfd": 438, "pidfd_send_signal": 424, "kcmp": 312, "add_key": 248, "request_key": 249,
    "keyctl": 250, "bpf": 321, "perf_event_open": 298, "io_uring_setup": 425,
    "io_uring_enter": 426, "io_uring_register": 427, "userfaultfd": 323, "fanotify_init": 300,
    "open_by_handle_at": 304, "name_to_handle_at": 303, "init_module": 175, "finit_module": 313,
    "delete_module": 176, "kexec_load": 246, "kexec_file_load": 320, "reboot": 169, "swapon": 167,
    "swapoff": 168, "syslog": 103, "acct": 163, "quotactl": 179, "quotactl_fd": 443,
    "settimeofday": 164, "clock_settime": 227, "adjtimex": 159, "clock_adjtime": 305,
    "sethostname": 170, "setdomainname": 171, "vhangup": 153, "iopl": 172, "ioperm": 173,
    "modify_ldt": 154, "socket": 41, "ioctl": 16, "shmget": 29, "shmat": 30, "semget": 64,
    "msgget": 68, "mq_open": 240, "prlimit64": 302, "getpriority": 140, "sendto": 44,
    "sendmsg": 46, "sendmmsg": 307, "prctl": 157, "openat2": 437,
}  # fmt: skip


class Stopped(Exception):
    """What the attempt was after is not there."""


def call(name, *arguments):
    """A system call by its name, or by a number of its own."""
    number = NUMBERS[name] if isinstance(name, str) else name
    ctypes.set_errno(0)
    arguments = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    got = libc.syscall(ctypes.c_long(number), *arguments)
    if got == -1:
        raise OSError(ctypes.get_errno(), "")
    return got


def x32(name, *arguments):
    """A system call by its number in the x32 interface."""
    number = NUMBERS[name] if isinstance(name, str) else name
    return call(number | X32, *arguments)


def need(reached, otherwise="not there"):
    if not reached:
        raise Stopped(otherwise)
    return reached


def read(path):
    with open(path, "rb") as file:
        return need(file.read(4096), "empty")


def write(path, text=b"x", flags=0):
    """Writes to a file that is there."""
    opened = os.open(path, os.O_WRONLY | flags)
    return os.write(opened, text)


def opened_for_writing(path):
    return os.open(path, os.O_WRONLY)


def status(field):
    found = re.search(rf"^{field}:\s+(\S+)", open("/proc/self/status").read(), re.M)
    return found[1]


def talk(family, address, kind=socket.SOCK_STREAM, protocol=0):
    with socket.socket(family, kind, protocol) as peer:
        peer.settimeout(2)
        peer.connect(address)
        if kind == socket.SOCK_DGRAM:
            peer.send(b"x")
        return need(peer.recv(100), "closed")


def execute(code):
    """Runs machine code, in another process because it may not come back."""
    area = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    area.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    return ctypes.CFUNCTYPE(ctypes.c_long)(address)()


def succeed(*command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
    return need(done.returncode == 0, "exit code")


def make(program):
    """The outcome of an attempt, in this process."""
    try:
        scope = dict(globals())
        exec(program, scope)
        return f"reached: {scope.get('got')!r}"
    except Stopped as stopped:
        return str(stopped)
    except socket.gaierror:
        return "no address"
    except TimeoutError:
        return "timeout"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
    except BaseException as error:
        return f"broken: {error!r}"


def outcome(number, program):
    directory = f"{workspace}/attempt-{number}"
    os.mkdir(directory)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.chdir(directory)
        signal.alarm(20)
        os.write(writer, make(program).encode()[:4000])
        os._exit(0)
    os.close(writer)
    told = b""
    while part := os.read(reader, 4096):
        told += part
    os.close(reader)
    _, ended = os.waitpid(child, 0)
    if os.WIFSIGNALED(ended) and not told:
        return signal.Signals(os.WTERMSIG(ended)).name
    return told.decode()


os.chdir(workspace)
print(json.dumps([outcome(number, program) for number, program in enumerate(attempts)]))
