"""One virtual machine: its QEMU process, and commands run in it over ssh."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from reclaim_lab.build_root import PATH
from reclaim_lab.errors import LabError
from reclaim_lab.process import Process
from reclaim_lab.shell import run, tail
from reclaim_vm import network
from reclaim_vm.image import Image
from reclaim_vm.places import Places, address, host_number

HOMES = {"root": "/root", "slurm-reclaim": "/"}
BOOT_PATIENCE = 300.0


@dataclass(frozen=True)
class Hardware:
    memory: int = 2560
    """MiB"""
    cpus: int = 2
    cpu: str = ""
    """QEMU's -cpu: a model and features, like `max,avx2=off`. As it comes: all there are."""
    kernel: str = "trixie"
    """Of which release of Debian the kernel is."""
    clock: str = "utc"
    """QEMU's -rtc base: `utc` or a time like 2030-01-01T00:00:00."""


class Machine:
    """Has what `reclaim_lab.node.Node` has, as far as it's needed."""

    def __init__(self, places: Places, name: str) -> None:
        self.places = places
        self.name = name
        self._record = places.run / f"{name}.json"

    # --- power

    def process(self) -> Process | None:
        """Its QEMU; None while it is down."""
        try:
            process = Process(**json.loads(self._record.read_text()))
        except (OSError, ValueError, TypeError):
            return None
        return process if process.alive() else None

    def boot(self, image: Image, hardware: Hardware) -> None:
        """Power on, and wait until root can log in."""
        if self.process() is None:
            self._start(image, hardware)
        deadline = time.monotonic() + BOOT_PATIENCE
        while self.ask(["true"], timeout=20) is None:
            if self.process() is None:
                raise LabError(f"{self.name} went down as it booted: {self.console_tail()}")
            if time.monotonic() > deadline:
                raise LabError(f"{self.name} does not answer: {self.console_tail()}")
            time.sleep(0.3)

    def _start(self, image: Image, hardware: Hardware) -> None:
        disk = self.places.disk(self.name)
        if not disk.exists():
            run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(image.disk),
                 str(disk)], doing=f"making the disk of {self.name}")  # fmt: skip
        self.places.run.mkdir(parents=True, exist_ok=True)
        network.plug_in(self.places, self.name)
        for name in ("ssh", "pid", "qmp"):
            (self.places.run / f"{self.name}.{name}").unlink(missing_ok=True)
        pidfile = self.places.run / f"{self.name}.pid"
        run([*network.entering(self.places), *self._command(image, hardware, str(pidfile))],
            doing=f"starting {self.name}")  # fmt: skip
        process = Process.of(int(pidfile.read_text()))
        if process is None:
            raise LabError(f"{self.name} died as soon as it was on")
        partial = self._record.with_suffix(".new")
        partial.write_text(json.dumps(asdict(process)))
        partial.rename(self._record)

    def _command(self, image: Image, hardware: Hardware, pidfile: str) -> list[str]:
        vmlinuz, initrd = image.kernel(hardware.kernel)
        key = base64.b64encode(self.places.key.with_suffix(".pub").read_bytes()).decode()
        words = " ".join([
            "root=/dev/vda rw console=ttyS0 net.ifnames=0 quiet panic=-1",
            f"systemd.hostname={self.name}",
            f"ip={address(self.name)}:::255.255.255.0::eth0:off",
        ])  # fmt: skip
        return [
            "qemu-system-x86_64", "-name", f"{self.places.name}-{self.name}",
            "-machine", "q35", "-accel", accelerator(), "-cpu", hardware.cpu or "max",
            "-smp", str(hardware.cpus), "-m", str(hardware.memory),
            "-rtc", f"base={hardware.clock}",
            "-display", "none", "-nodefaults", "-no-user-config",
            "-serial", f"file:{self.places.console(self.name)}",
            "-kernel", str(vmlinuz), "-initrd", str(initrd), "-append", words,
            # What the machine has not written through is lost with its power, as on a real disk.
            "-drive", f"file={self.places.disk(self.name)},if=virtio,cache=writeback",
            "-netdev", f"tap,id=net,ifname={self.name},script=no,downscript=no",
            "-device", "virtio-net-pci,netdev=net,romfile=,"
                       f"mac=02:52:56:00:00:{host_number(self.name):02x}",
            "-device", "virtio-rng-pci",
            "-smbios", "type=11,value=io.systemd.credential.binary:"
                       f"ssh.authorized_keys.root={key}",
            "-qmp", f"unix:{self.places.run / self.name}.qmp,server=on,wait=off",
            "-daemonize", "-pidfile", pidfile,
        ]  # fmt: skip

    def kill(self) -> None:
        """A power failure."""
        process = self.process()
        if process and not process.kill():
            raise LabError(f"{self.name} (QEMU {process.pid}) is still there 20 s after SIGKILL")
        self._record.unlink(missing_ok=True)
        self._log_out()
        network.unplug(self.places, self.name)

    def _log_out(self) -> None:
        path = self.places.run / f"{self.name}.ssh"
        if path.exists():
            subprocess.run(
                [*self._ssh(), "-O", "exit", "x"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=20,
            )  # fmt: skip
            path.unlink(missing_ok=True)

    def console_tail(self, lines: int = 6) -> str:
        try:
            return tail(self.places.console(self.name).read_text(errors="replace"), lines)
        except OSError:
            return "(nothing on its console)"

    def qmp(self, command: str, **arguments: object) -> dict:
        """One command of QEMU's control protocol, e.g. `stop` or `cont`."""
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(20)
            link.connect(f"{self.places.run / self.name}.qmp")
            stream = link.makefile("rw")
            stream.readline()
            for name, given in (("qmp_capabilities", {}), (command, arguments)):
                stream.write(json.dumps({"execute": name, "arguments": given}) + "\n")
                stream.flush()
                answer = json.loads(stream.readline())
                while "event" in answer:
                    answer = json.loads(stream.readline())
        if "error" in answer:
            raise LabError(f"{command} on {self.name}: {answer['error']['desc']}")
        return answer

    # --- running things in it

    def _ssh(self) -> list[str]:
        return [
            *network.entering(self.places), "ssh", "-q", "-F", "none", "-i", str(self.places.key),
            "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
            "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15", "-o", "BatchMode=yes",
            "-o", "ControlMaster=auto", "-o", f"ControlPath={self.places.run / self.name}.ssh",
            "-o", "ControlPersist=600",
        ]  # fmt: skip

    def entering(self, argv: Sequence[str], *, user: str = "root") -> list[str]:
        """The command line that runs `argv` in it as if logged in there."""
        home = HOMES.get(user, f"/shared/home/{user}")
        environment = {
            "PATH": PATH, "HOME": home, "USER": user, "LOGNAME": user, "SHELL": "/bin/bash",
            "LANG": "C.UTF-8",
        }  # fmt: skip
        words = ["setpriv", "--pdeathsig", "KILL"]
        if user != "root":
            words += [f"--reuid={user}", f"--regid={user}", "--init-groups"]
        words += ["--", "env", "-i", *(f"{k}={v}" for k, v in environment.items()), *argv]
        script = f"cd {shlex.quote(home)} 2>/dev/null || cd /; exec {shlex.join(words)}"
        return [*self._ssh(), f"root@{address(self.name)}", script]

    def run(
        self, argv: Sequence[str], *, doing: str, user: str = "root", text_in: str | None = None
    ) -> str:
        return run(self.entering(argv, user=user), doing=doing, text_in=text_in)

    def read(self, inside: str) -> str:
        """The text of one of its files. Raises OSError."""
        said = self.ask(["cat", inside])
        if said is None:
            raise FileNotFoundError(inside)
        return said

    def ask(self, argv: Sequence[str], timeout: float = 60.0) -> str | None:
        """Stdout where it worked, None where it did not: for waiting until something does."""
        try:
            done = subprocess.run(
                self.entering(argv),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                text=True, timeout=timeout,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return None
        return done.stdout if done.returncode == 0 else None


def accelerator() -> str:
    """KVM on a processor that has it; else everything is computed, some ten times slower. A
    /dev/kvm alone is not enough: one without (pvm) runs only kernels that were made for it."""
    flags = Path("/proc/cpuinfo").read_text()
    if os.access("/dev/kvm", os.R_OK | os.W_OK) and re.search(
        r"^flags.*\b(vmx|svm)\b", flags, re.M
    ):
        return "kvm"
    return "tcg,thread=multi,tb-size=512"


def make_key(places: Places) -> None:
    if not places.key.exists():
        places.state.mkdir(parents=True, exist_ok=True)
        os.chmod(places.state, 0o700)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "vm", "-f", str(places.key)],
            doing="making the key for the machines")  # fmt: skip
