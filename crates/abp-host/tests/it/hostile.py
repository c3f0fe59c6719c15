"""A sidecar that tries to reach the host's state in every way it knows.

It writes what came of each attempt to `results.json` in its working directory: `denied: WHY`, or
`REACHED: WHAT`. The environment says where things are.
"""

import ctypes
import glob
import json
import os
import stat
import subprocess
import sys

STATE, STAGES, ALIAS = os.environ["STATE"], os.environ["STAGES"], os.environ.get("ALIAS")
HOST_PID = int(os.environ["HOST_PID"])
HERE = os.getcwd()
RUN = os.path.dirname(HERE)
CANARY = "canary-of-the-state"
SECRET = os.path.join(STATE, "key")
OTHER = os.path.join(STAGES, "run-2", "tree", "file")

libc = ctypes.CDLL(None, use_errno=True)
attempts = {}


def attempt(function):
    attempts[function.__name__] = function
    return function


def shell(name, script):
    """An attempt in shell: it succeeds where it prints the canary or exits with 0."""

    def run():
        done = subprocess.run(
            ["sh", "-c", script], capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        if CANARY in done.stdout:
            return "the canary was printed"
        if done.returncode == 0:
            return "exit 0: " + done.stdout
        raise OSError(done.stderr.strip() or "exit " + str(done.returncode))

    attempts[name] = run


def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def read(path):
    with open(path, "rb") as file:
        return file.read(4096)


def listed(path, allowed=()):
    names = sorted(set(os.listdir(path)) - set(allowed))
    if not names:
        raise OSError("nothing but what is allowed is there")
    return names


# Reading and writing.


@attempt
def read_state():
    return read(SECRET)


@attempt
def list_state():
    return listed(STATE)


@attempt
def read_other_stage():
    return read(OTHER)


@attempt
def list_stages():
    return listed(STAGES, [os.path.basename(RUN)])


@attempt
def list_own_run():
    return listed(RUN, [os.path.basename(HERE)])


@attempt
def climb():
    os.chdir(HERE)
    for _ in range(12):
        os.chdir("..")
        if os.path.exists("state/key"):
            return read("state/key")
    os.chdir(HERE)
    raise OSError("the top was reached")


@attempt
def follow_a_link():
    link = os.path.join(HERE, "link")
    os.symlink(SECRET, link)
    return read(link)


@attempt
def read_through_another_mount():
    if ALIAS is None:
        raise OSError("there is no other mount")
    return read(os.path.join(ALIAS, "state", "key"))


@attempt
def write_state():
    with open(os.path.join(STATE, "planted"), "w"):
        return "created"


@attempt
def overwrite_state():
    with open(SECRET, "w"):
        return "emptied"


@attempt
def write_other_stage():
    with open(OTHER, "w"):
        return "emptied"


@attempt
def write_stages():
    with open(os.path.join(STAGES, "planted"), "w"):
        return "created"


@attempt
def chmod_state():
    os.chmod(STATE, 0o777)
    return "changed"


@attempt
def rename_state():
    os.rename(STATE, STATE + "-moved")
    return "renamed"


@attempt
def rename_stages():
    os.rename(STAGES, STAGES + "-moved")
    return "renamed"


@attempt
def rename_the_parent_of_the_state():
    os.rename(os.path.dirname(STATE), os.path.dirname(STATE) + "-moved")
    return "renamed"


@attempt
def rename_the_parent_of_the_stages():
    os.rename(os.path.dirname(STAGES), os.path.dirname(STAGES) + "-moved")
    return "renamed"


@attempt
def exchange_the_parent_of_the_stages():
    parent = os.path.dirname(STAGES)
    os.makedirs(parent + "-mine/stages", exist_ok=True)
    try:
        return checked(libc.renameat2(-100, parent.encode(), -100, (parent + "-mine").encode(), 2))
    finally:
        os.rmdir(parent + "-mine/stages")
        os.rmdir(parent + "-mine")


@attempt
def rename_own_run():
    os.rename(RUN, RUN + "-moved")
    return "renamed"


@attempt
def rename_workspace():
    os.rename(HERE, HERE + "-moved")
    return "renamed"


@attempt
def replace_workspace_by_a_link():
    os.rmdir(HERE)
    os.symlink(STATE, HERE)
    return "replaced"


@attempt
def link_state_into_workspace():
    os.link(SECRET, os.path.join(HERE, "hard"))
    return read("hard")


# Mounts.

shell("umount", f"umount {STATE}")
shell("umount_lazily", f"umount -l {STATE}; cat {SECRET}")
shell("remount", f"mount -o remount,rw,bind {STATE} && touch {STATE}/planted")
shell("bind_mount", f"mkdir -p m; mount --bind / m && cat m{SECRET}")
shell("mount_tmpfs", "mkdir -p m; mount -t tmpfs none m")
shell("mount_proc", "mkdir -p m; mount -t proc proc m")
shell("own_namespace_umount", f"unshare -Urm sh -c 'umount {STATE}; umount -l {STATE}; cat {SECRET}'")
shell("own_namespace_bind", f"unshare -Urm sh -c 'mkdir -p m; mount --bind / m; cat m{SECRET}'")
shell(
    "own_namespace_rbind",
    f"unshare -Urm sh -c 'mkdir -p m; mount --rbind / m; umount m{STATE}; umount -l m{STATE}; cat m{SECRET}'",
)
shell(
    "own_namespace_bind_of_the_parent",
    f"unshare -Urm sh -c 'mkdir -p m; mount --bind {os.path.dirname(STATE)} m; cat m/state/key'",
)
shell("own_namespace_move", f"unshare -Urm sh -c 'mkdir -p m; mount --move {STATE} m; cat {SECRET}'")
shell(
    "own_namespace_overlay",
    "unshare -Urm sh -c 'mkdir -p m u w; "
    f"mount -t overlay -o lowerdir={os.path.dirname(STATE)},upperdir=u,workdir=w none m; cat m/state/key'",
)
shell(
    "own_namespaces_proc",
    f"unshare -Urmpf sh -c 'mount -t proc proc /proc; cat /proc/*/root{SECRET}; umount -l {STATE}; cat {SECRET}'",
)
shell("enter_init", f"nsenter -t 1 -m cat {SECRET}")
shell("enter_init_as_root", f"unshare -Ur nsenter -t 1 -m cat {SECRET}")
shell("enter_host", f"nsenter -t {HOST_PID} -m cat {SECRET}")
shell("change_root", f"chroot / cat {SECRET}")


def in_own_namespace(function):
    """An attempt with every capability of a user namespace that maps no id: it takes no right to
    make one, and system calls need no other program, which would lose them."""

    def run():
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                checked(libc.unshare(0x10000000 | 0x00020000))
                result = function()
                os.write(writer, ("REACHED " + repr(result)).encode())
            except BaseException as error:
                os.write(writer, str(error).encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            said = pipe.read()
        os.waitpid(child, 0)
        if said.startswith("REACHED"):
            return said
        raise OSError(said)

    attempts[function.__name__] = run
    return function


def mount(source, target, kind, flags, options=None):
    encoded = [value and value.encode() for value in (source, target, kind)]
    return checked(libc.mount(*encoded, flags, options and options.encode()))


BIND, MOVE, RECURSIVE, REMOUNT = 4096, 8192, 16384, 32
DETACH = 2


@in_own_namespace
def unmapped_umount():
    for flags in (0, DETACH):
        try:
            checked(libc.umount2(STATE.encode(), flags))
        except OSError as error:
            problem = error
    return read(SECRET) if os.path.exists(SECRET) else checked_error(problem)


def checked_error(problem):
    raise problem


@in_own_namespace
def unmapped_bind():
    os.makedirs("m1", exist_ok=True)
    mount("/", "m1", None, BIND)
    return read("m1" + SECRET)


@in_own_namespace
def unmapped_bind_of_the_parent():
    os.makedirs("m2", exist_ok=True)
    mount(os.path.dirname(STATE), "m2", None, BIND)
    return read("m2/state/key")


@in_own_namespace
def unmapped_recursive_bind():
    os.makedirs("m3", exist_ok=True)
    mount("/", "m3", None, BIND | RECURSIVE)
    checked(libc.umount2(("m3" + STATE).encode(), DETACH))
    return read("m3" + SECRET)


@in_own_namespace
def unmapped_move():
    os.makedirs("m4", exist_ok=True)
    mount(STATE, "m4", None, MOVE)
    return read(SECRET)


@in_own_namespace
def unmapped_remount():
    mount(None, STATE, None, REMOUNT | BIND)
    with open(os.path.join(STATE, "planted"), "w"):
        return "created"


@in_own_namespace
def unmapped_overlay():
    for name in ("m5", "u5", "w5"):
        os.makedirs(name, exist_ok=True)
    lower = os.path.dirname(STATE)
    mount("none", "m5", "overlay", 0, f"lowerdir={lower},upperdir=u5,workdir=w5,userxattr")
    return read("m5/state/key")


@in_own_namespace
def unmapped_tree():
    # open_tree with a copy of the parent's mount, without what is mounted on it.
    tree = checked(libc.syscall(428, -100, os.path.dirname(STATE).encode(), 1))
    fd = os.open("state/key", os.O_RDONLY, dir_fd=tree)
    return os.read(fd, 64)


@in_own_namespace
def unmapped_init():
    return read("/proc/1/root" + SECRET)


@in_own_namespace
def unmapped_setns():
    return checked(libc.setns(os.open("/proc/1/ns/mnt", os.O_RDONLY), 0))


@attempt
def umount_by_the_system_call():
    return checked(libc.umount2(STATE.encode(), 2))


@attempt
def setns():
    return checked(libc.setns(os.open("/proc/1/ns/mnt", os.O_RDONLY), 0))


@attempt
def open_by_handle():
    class Handle(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("data", ctypes.c_char * 128)]

    handle, mount_id = Handle(bytes=128), ctypes.c_int()
    checked(libc.name_to_handle_at(-100, b"/", ctypes.byref(handle), ctypes.byref(mount_id), 0))
    root = os.open("/", os.O_RDONLY)
    fd = checked(libc.open_by_handle_at(root, ctypes.byref(handle), os.O_RDONLY))
    return os.listdir(fd)


# Other processes.


@attempt
def roots_of_processes():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for way in ("root", "cwd/../../..", "cwd"):
            path = f"/proc/{pid}/{way}{SECRET}"
            try:
                return read(path)
            except OSError:
                pass
    raise OSError("no process leads there")


@attempt
def descriptors_of_processes():
    for fd in glob.glob("/proc/[0-9]*/fd/*"):
        for name in ("key", "state/key", "../key", SECRET.lstrip("/")):
            try:
                return read(os.path.join(fd, name))
            except OSError:
                pass
    raise OSError("no descriptor leads there")


@attempt
def root_of_init():
    return os.listdir("/proc/1/root/")


@attempt
def descriptors_of_init():
    # User id 0 may see that they are there, and no more.
    for fd in os.listdir("/proc/1/fd"):
        try:
            return os.readlink(f"/proc/1/fd/{fd}")
        except OSError:
            pass
    raise OSError("none can be followed")


@attempt
def see_the_host():
    if not read(f"/proc/{HOST_PID}/cmdline").startswith(os.environ["HOST_PROGRAM"].encode()):
        raise OSError("it is another process")
    return "the host is in sight"


@attempt
def signal_the_host():
    if not os.path.exists(f"/proc/{HOST_PID}"):
        os.kill(HOST_PID, 0)
        return "the host can be signalled"
    raise OSError("the id belongs to another process")


@attempt
def trace_init():
    return checked(libc.ptrace(16, 1, None, None))


@attempt
def seize_init():
    return checked(libc.ptrace(0x4206, 1, None, None))


@attempt
def memory_of_init():
    with open("/proc/1/mem", "r+b"):
        return "opened"


@attempt
def memory_of_init_by_the_system_call():
    buffer = ctypes.create_string_buffer(8)
    vector = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8)
    remote = (ctypes.c_void_p * 2)(0x400000, 8)
    return checked(libc.process_vm_readv(1, vector, 1, remote, 1, 0))


@attempt
def environment_of_init():
    return read("/proc/1/environ")


# Privileges.


@attempt
def capabilities():
    status = dict(line.split(":\t", 1) for line in open("/proc/self/status"))
    sets = {name: int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")}
    # The bounding set of a user without privileges cannot be changed, and need not be.
    if os.environ["BOUNDED"] == "1":
        sets["CapBnd"] = int(status["CapBnd"], 16)
    if any(sets.values()) or status["NoNewPrivs"].strip() != "1":
        return str(sets)
    raise OSError("there are none")


@attempt
def kernel_settings():
    path = "/proc/sys/kernel/core_pattern"
    with open(path, "r+") as file:
        file.write(file.read())
        return "core_pattern can be written"


@attempt
def control_groups():
    for path in glob.glob("/sys/fs/cgroup/**/cgroup.procs", recursive=True):
        try:
            with open(path, "w"):
                return path
        except OSError:
            pass
    raise OSError("none can be written")


@attempt
def disks():
    found = []
    for directory, _, names in os.walk("/dev"):
        for path in (os.path.join(directory, name) for name in names):
            try:
                if stat.S_ISBLK(os.stat(path).st_mode):
                    os.close(os.open(path, os.O_RDONLY))
                    found.append(path)
            except OSError:
                pass
    if not found:
        raise OSError("none can be opened")
    return found


@attempt
def make_a_disk():
    with open("/proc/partitions") as file:
        major, minor = file.read().split("\n")[2].split()[:2]
    os.mknod("disk", 0o600 | stat.S_IFBLK, os.makedev(int(major), int(minor)))
    return read("disk")


def outcome(function):
    try:
        return f"REACHED: {function()!r}"
    except Exception as error:
        return f"denied: {error}"


def send(frame):
    print(json.dumps(frame), flush=True)


send(
    {
        "t": "hello",
        "contract_version": "abp/v0.1",
        "backend": {"id": "hostile"},
        "capabilities": {},
    }
)
run = json.loads(sys.stdin.readline())
results = {name: outcome(function) for name, function in attempts.items()}
# What an agent needs is there all the same.
with open("results.json", "w") as file:
    json.dump(results, file)
with open("/dev/null", "w") as file:
    file.write("x")
subprocess.run(["sh", "-c", "ps >/dev/null 2>&1; git --version >/dev/null; : >/dev/shm/x"])
send({"t": "final", "ref_id": run["id"], "receipt": {}})
