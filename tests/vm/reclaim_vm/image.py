"""The disk that every machine starts from: the lab's image with Debian's kernel, systemd as PID 1
and what a file server needs, as one ext4 image."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from reclaim_lab import host_apt, install, kernel, layers
from reclaim_lab.build_root import DIES_WITH_US, Build, build_in_root
from reclaim_lab.errors import LabError
from reclaim_lab.shell import run, tail

DISK_SIZE = "24G"
KERNELS = {"trixie": "6.12", "bookworm": "6.1"}
"""Debian's own, by the release that it comes from; the first is the usual one."""

# libnl of testing came with CRIU, and its parts go together.
_PACKAGE_LINES = """
systemd-sysv dbus udev kmod initramfs-tools nfs-kernel-server nfs-common libnl-genl-3-200/testing
e2fsprogs zstd
"""
PACKAGES = _PACKAGE_LINES.split()

# Daemons are switched on when a machine knows its role and has its configuration.
SCRIPT = """
export DEBIAN_FRONTEND=noninteractive INITRD=No
apt-get -q update
apt-get -q install -y --no-install-recommends {packages}
{older}
systemctl disable slurmctld slurmd slurmdbd mariadb munge ssh nfs-server rpc-statd-notify || :
systemctl mask nfs-blkmap rpc-statd-notify apt-daily.timer apt-daily-upgrade.timer || :
systemctl enable systemd-networkd systemd-network-generator ssh serial-getty@ttyS0
printf 'virtio_pci\\nvirtio_blk\\nvirtio_net\\next4\\n' >> /etc/initramfs-tools/modules
sed -i 's/^MODULES=.*/MODULES=list/' /etc/initramfs-tools/initramfs.conf
unset INITRD
for version in $(ls /lib/modules); do update-initramfs -c -k "$version" || :; done
ls -l /boot
: > /etc/machine-id
rm -f /etc/ssh/ssh_host_*_key*
ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key
echo 'PermitRootLogin prohibit-password' > /etc/ssh/sshd_config.d/root.conf
mkdir -p /var/log/journal
rm -rf /var/cache/apt/archives /var/lib/apt/lists/*
"""


@dataclass(frozen=True)
class Image:
    disk: Path
    boot: Path
    """Has `vmlinuz-VERSION` and `initrd.img-VERSION` of each kernel."""

    def kernel(self, release: str) -> tuple[Path, Path]:
        """The kernel of a release of Debian and its initrd."""
        for path in sorted(self.boot.glob(f"vmlinuz-{KERNELS[release]}.*")):
            return path, self.boot / path.name.replace("vmlinuz", "initrd.img")
        raise LabError(f"the image has no kernel of Debian {release}")


def _system_layer(lowers: list[Path]) -> Path:
    mirror = host_apt.debian_mirror(host_apt.host_sources())
    line = host_apt.source_line(mirror, "bookworm")
    line = line.replace(mirror.signed_by, host_apt.ARCHIVE_KEYRING)
    older = (
        f"echo '{line}' > /etc/apt/sources.list.d/older.list\n"
        "apt-get -q update\n"
        "apt-get -q install -y --no-install-recommends $(apt-cache show linux-image-amd64 "
        f"| awk '/^Depends: linux-image-{KERNELS['bookworm']}[.]/ {{print $2; exit}}')\n"
        "rm /etc/apt/sources.list.d/older.list"
    )
    packages = " ".join([*PACKAGES, "linux-image-amd64/trixie"])
    script = SCRIPT.format(packages=packages, older=older)

    def build(place: Path) -> None:
        build_in_root(Build(lowers, script, place), "installing a kernel and systemd")

    key = layers.digest([path.name for path in lowers], script)
    return layers.ensure("vm-system", key, build, "the layer of the machines' kernel and systemd")


def ready() -> Image:
    """Builds what is missing: minutes the first time."""
    base = install.base_layers(0)
    lowers = [_system_layer(base), *base]
    key = layers.digest([path.name for path in lowers], DISK_SIZE)
    layer = layers.ensure("vm-disk", key, lambda place: _pack(place, lowers), "the machines' disk")
    return Image(layer / "disk.ext4", layer / "boot")


def _pack(place: Path, lowers: list[Path]) -> None:
    tree = place / "tree"
    (tree / "boot").mkdir(parents=True)
    (place / "root").mkdir()
    spec = json.dumps([[str(path) for path in lowers], str(place / "root"), str(tree)])
    log = place / "log"
    with log.open("w") as output:
        rc = subprocess.run(
            [*DIES_WITH_US, "unshare", "--mount", "--propagation", "private", sys.executable,
             "-s", "-m", "reclaim_vm.image", spec],
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        ).returncode  # fmt: skip
    if rc != 0:
        raise LabError(f"packing the disk failed: {tail(log.read_text(errors='replace'))}")


def _inside(lowers: list[str], root: str, tree: str) -> None:
    """In a mount namespace of its own: what is mounted goes with it."""
    kernel.mount(
        "overlay", root, "overlay", kernel.MS_RDONLY, options=f"lowerdir={':'.join(lowers)}"
    )
    disk = f"{tree}/disk.ext4"
    run(["truncate", "-s", DISK_SIZE, disk], doing="making the disk")
    run(["mke2fs", "-q", "-t", "ext4", "-L", "root", "-d", root, disk], doing="filling the disk")
    run(
        ["sh", "-c", f"cp -L {root}/boot/vmlinuz-* {root}/boot/initrd.img-* {tree}/boot"],
        doing="copying the kernels",
    )


if __name__ == "__main__":
    _inside(*json.loads(sys.argv[1]))
