"""The machine that a configuration sees: a network, files and names of its own.

`enter` runs the program again inside new namespaces, so that configurations run as they are: with
their own addresses, with ports such as 80, with files below /etc. Nothing of the machine changes.
Clients and the proxy are on one host, backends on another, which has all of 10.0.0.0/16.
"""

import contextlib
import ctypes
import os
import pathlib
import shutil
import subprocess
import sys

# Addresses of clients and front doors: all of these networks.
NETWORKS = ("10.1.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")
BACKENDS = "10.0.0.0/16"
# Folders that programs write to. Each is empty in the world.
EMPTY = ("/run", "/var/log", "/var/lib")
FOLDERS = ("/run/haproxy", "/run/equipoise", "/var/lib/haproxy", "/var/lib/nginx", "/var/log/nginx", "/var/lib/equipoise")
# The rest of /etc stays.
OWN = ("haproxy", "nginx", "equipoise", "hosts", "resolv.conf")


# Programs of the world itself.
PROGRAMS = ("curl", "ip", "mount", "nghttpd", "openssl", "sysctl", "unshare")


def unavailable():
    """The reason why no world can be made here, or None."""
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if missing:
        return f"not installed: {', '.join(missing)}"
    if os.geteuid() != 0:
        return "needs root, for network namespaces"
    tried = subprocess.run([*UNSHARE, "mount", "-t", "sysfs", "sysfs", "/sys"], capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else f"no namespaces can be made: {tried.stderr.strip()}"


UNSHARE = ("unshare", "--net", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc")


def enter(*arguments, limit):
    """Runs this program in a world, with these arguments; returns its exit status and output."""
    command = [*UNSHARE, sys.executable, sys.argv[0], *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit, check=False)
    return done.returncode, done.stdout


def make(scratch, files, arrange):
    """Makes the world, from inside. `files` maps paths to contents, `arrange` makes other hosts."""
    run("ip", "link", "set", "lo", "up")
    # The network's own, and no programs and maps of others.
    run("mount", "-t", "sysfs", "sysfs", "/sys")
    run("mount", "-t", "bpf", "bpf", "/sys/fs/bpf")
    for folder in EMPTY:
        run("mount", "-t", "tmpfs", "tmpfs", folder)
    old = pathlib.Path("/run/machine-etc")
    old.mkdir()
    run("mount", "--bind", "/etc", old)
    run("mount", "-o", "remount,bind,ro", old)
    run("mount", "-t", "tmpfs", "tmpfs", "/etc")
    for entry in old.iterdir():
        if entry.name not in OWN:
            pathlib.Path("/etc", entry.name).symlink_to(entry)
    for folder in FOLDERS:
        pathlib.Path(folder).mkdir(parents=True)
    write("/etc/hosts", "127.0.0.1 localhost\n")
    write("/etc/resolv.conf", "nameserver 10.0.0.53\n")
    arrange()
    certificates = Certificates(scratch / "certificates")
    for path, content in files.items():
        write(path, content if isinstance(content, str) else certificates.text(**content))
    return certificates


def backend_host():
    """Makes the backends' host and the link to it; all other networks are here."""
    for network in NETWORKS:
        run("ip", "route", "add", "local", network, "dev", "lo")
    there = new_host("backends")
    run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", "backends")
    for ip, address in ((("ip",), "10.255.0.1/30"), (there, "10.255.0.2/30")):
        run(*ip, "addr", "add", address, "dev", "eth0")
        run(*ip, "link", "set", "eth0", "up")
    run("ip", "route", "add", BACKENDS, "dev", "eth0")
    run(*there, "route", "add", "local", BACKENDS, "dev", "lo")
    run(*there, "route", "add", "default", "via", "10.255.0.1")


def new_host(name):
    """Makes a host; returns the command that arranges it."""
    run("ip", "netns", "add", name)
    run("ip", "-n", name, "link", "set", "lo", "up")
    return "ip", "-n", name


@contextlib.contextmanager
def on(host):
    """Sockets that are made within are of this host, a name of `new_host`; None is this one."""
    if host is None:
        yield
        return
    with open("/proc/thread-self/ns/net") as here, open(f"/run/netns/{host}") as there:
        set_network(there)
        try:
            yield
        finally:
            set_network(here)


def set_network(file):
    clone_newnet = 0x40000000
    if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), clone_newnet) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def write(path, text):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if "PRIVATE KEY" in text:
        path.chmod(0o600)


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(str(word) for word in command)}: {done.stderr.strip()}")
    return done.stdout


class Certificates:
    """Certificates by their first name. All are signed by one authority, made at the first use."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()

    def text(self, certificate=None, chain=None, key=None, authority=None):
        """PEM: a certificate with its key, without it, the key alone, or the authority."""
        if authority:
            return self._authority().read_text()
        names = certificate or chain or key
        pem, private = self.pair(names.split())
        parts = {"certificate": (pem, private), "chain": (pem,), "key": (private,)}
        kind = "certificate" if certificate else "chain" if chain else "key"
        return "".join(part.read_text() for part in parts[kind])

    def pair(self, names):
        """The files with the certificate for these names and with its key."""
        pem, private = (self.folder / f"{names[0].replace('*', '_')}.{end}" for end in ("pem", "key"))
        if not pem.exists():
            authority = self._authority()
            extension = self.folder / "extension"
            extension.write_text("subjectAltName=" + ",".join(f"DNS:{name}" for name in names) + "\n")
            request = self.folder / "request"
            self._openssl("req", *CURVE, "-keyout", private, "-out", request, "-subj", f"/CN={names[0]}")
            self._openssl("x509", "-req", "-in", request, "-CA", authority, "-CAkey", self.folder / "authority.key",
                          "-CAcreateserial", "-days", "30", "-extfile", extension, "-out", pem)
        return pem, private

    def _authority(self):
        pem = self.folder / "authority.pem"
        if not pem.exists():
            self._openssl("req", "-x509", *CURVE, "-keyout", self.folder / "authority.key", "-out", pem, "-days", "30",
                          "-subj", "/CN=Example authority")
        return pem

    @staticmethod
    def _openssl(*words):
        run("openssl", *words)


CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
