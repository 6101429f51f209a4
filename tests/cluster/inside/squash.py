"""A directory served as an NFS server with root_squash serves it: each request is made with the
ids of who asks, and root is nobody.

squash.py SOURCE MOUNTPOINT [UID]: serves until it is unmounted; with UID to that user alone, as
sshfs does: root may not even look at a file that is open. It speaks the kernel's FUSE protocol
(linux/fuse.h, 7.31) itself, since nothing of FUSE is installed on the nodes.
"""

import contextlib
import ctypes
import errno
import os
import stat
import struct
import sys

NOBODY = 65534
_MS_NOSUID, _MS_NODEV = 2, 4
_HEADER = struct.Struct("<IIQQIIIHH")
_ANSWER = struct.Struct("<IiQ")
_MOST = 1 << 17  # bytes of one read or write
_BIG_WRITES = 1 << 5
# Seconds for which a name is not asked for again. Where root asks and is refused, FUSE, unlike NFS,
# would take the file for deleted; so root may walk along names, and open and change nothing.
_REMEMBERED = 3600


class Squash:
    def __init__(self, source, device):
        self.source = os.open(source, os.O_RDONLY | os.O_DIRECTORY)
        self.device = device
        self.paths = {1: "."}
        self.numbers = {".": 1}
        self.files = {}

    def serve(self):
        while True:
            try:
                request = os.read(self.device, _MOST + 4096)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                    continue  # it was interrupted before it was read
                if error.errno == errno.ENODEV:
                    return  # unmounted
                raise
            _, code, unique, node, uid, gid, _, _, _ = _HEADER.unpack_from(request)
            do = OPERATIONS.get(code)
            if code in _WITHOUT_ANSWER:
                continue
            try:
                answer = self.as_who_asks(uid, gid, do, node, request[_HEADER.size :])
                failed = 0
            except OSError as error:
                answer, failed = b"", -(error.errno or errno.EIO)
            head = _ANSWER.pack(_ANSWER.size + len(answer), failed, unique)
            with contextlib.suppress(FileNotFoundError):  # nobody waits for it any more
                os.write(self.device, head + answer)

    def as_who_asks(self, uid, gid, do, node, body):
        if do is None:
            raise OSError(errno.ENOSYS, "not served")
        if do is getattr_:  # NFS asks no rights of whoever has the file's handle
            return do(self, node, body)
        os.setegid(gid if uid else NOBODY)
        os.seteuid(uid or NOBODY)
        try:
            return do(self, node, body)
        finally:
            os.seteuid(0)
            os.setegid(0)

    # -- names ---------------------------------------------------------------------------------

    def child(self, node, name):
        return os.path.normpath(os.path.join(self.paths[node], os.fsdecode(name)))

    def number(self, path):
        if path not in self.numbers:
            self.numbers[path] = node = max(self.paths) + 1
            self.paths[node] = path
        return self.numbers[path]

    def moved(self, old, new):
        for path in [p for p in self.numbers if p == old or p.startswith(f"{old}/")]:
            node = self.numbers.pop(path)
            self.numbers[new + path[len(old) :]] = node
            self.paths[node] = new + path[len(old) :]

    def removed(self, path):
        """What is open of it goes on by its handle; the name is free for another file."""
        self.numbers.pop(path, None)

    # -- answers -------------------------------------------------------------------------------

    def entry(self, path):
        facts = self.lstat(path)
        node = self.number(path)
        return struct.pack("<QQQQII", node, 0, _REMEMBERED, 0, 0, 0) + attributes(facts)

    def lstat(self, path):
        return os.stat(path, dir_fd=self.source, follow_symlinks=False)

    def attr(self, facts):
        return struct.pack("<QII", 0, 0, 0) + attributes(facts)

    def opened(self, fd):
        self.files[fd] = fd
        return struct.pack("<QII", fd, 0, 0)


def attributes(s):
    seconds = [int(t // 10**9) for t in (s.st_atime_ns, s.st_mtime_ns, s.st_ctime_ns)]
    nanos = [int(t % 10**9) for t in (s.st_atime_ns, s.st_mtime_ns, s.st_ctime_ns)]
    return struct.pack(
        "<6Q10I", s.st_ino, s.st_size, s.st_blocks, *seconds, *nanos, s.st_mode, s.st_nlink,
        s.st_uid, s.st_gid, s.st_rdev & 0xFFFFFFFF, s.st_blksize, 0,
    )  # fmt: skip


def names(body, skip=0, count=1):
    found = body[skip:].split(b"\0")[:count]
    return found[0] if count == 1 else found


def init(self, node, body):
    major, _, ahead, flags = struct.unpack_from("<IIII", body)
    answer = struct.pack("<IIIIHHII", major, 31, ahead, flags & _BIG_WRITES, 12, 9, _MOST, 1)
    return answer + bytes(64 - len(answer))


def lookup(self, node, body):
    return self.entry(self.child(node, names(body)))


def getattr_(self, node, body):
    flags, _, handle = struct.unpack_from("<IIQ", body)
    return self.attr(os.fstat(handle) if flags & 1 else self.lstat(self.paths[node]))


def setattr_(self, node, body):
    words = struct.unpack_from("<IIQQQQQQIIIIIIII", body)
    valid, handle, size = words[0], words[2], words[3]
    atime, mtime, anano, mnano = words[5], words[6], words[8], words[9]
    mode, uid, gid = words[11], words[13], words[14]
    path = self.paths[node]
    fd = handle if valid & 64 else None
    if valid & 1:
        os.chmod(path if fd is None else fd, stat.S_IMODE(mode), **self.at(fd))
    if valid & 6:
        ids = (uid if valid & 2 else -1, gid if valid & 4 else -1)
        os.chown(path if fd is None else fd, *ids, **self.at(fd, follow=False))
    if valid & 8:
        with_fd = os.open(path, os.O_WRONLY, dir_fd=self.source) if fd is None else fd
        os.ftruncate(with_fd, size)
        if fd is None:
            os.close(with_fd)
    if valid & 48:
        now = self.lstat(path)
        times = (
            atime * 10**9 + anano if valid & 16 else now.st_atime_ns,
            mtime * 10**9 + mnano if valid & 32 else now.st_mtime_ns,
        )
        if valid & 0x180:
            os.utime(path, dir_fd=self.source)
        else:
            os.utime(path, ns=times, dir_fd=self.source)
    return self.attr(os.fstat(fd) if fd is not None else self.lstat(path))


def at(self, fd, follow=True):
    if fd is not None:
        return {}
    return {"dir_fd": self.source} if follow else {"dir_fd": self.source, "follow_symlinks": False}


Squash.at = at


def readlink(self, node, body):
    return os.fsencode(os.readlink(self.paths[node], dir_fd=self.source))


def symlink(self, node, body):
    name, target = names(body, 0, 2)
    path = self.child(node, name)
    os.symlink(os.fsdecode(target), path, dir_fd=self.source)
    return self.entry(path)


def mkdir(self, node, body):
    mode, mask = struct.unpack_from("<II", body)
    path = self.child(node, names(body, 8))
    os.mkdir(path, mode & ~mask, dir_fd=self.source)
    return self.entry(path)


def mknod(self, node, body):
    mode, device, mask, _ = struct.unpack_from("<IIII", body)
    path = self.child(node, names(body, 16))
    os.mknod(path, mode & ~mask, device, dir_fd=self.source)
    return self.entry(path)


def unlink(self, node, body):
    path = self.child(node, names(body))
    os.unlink(path, dir_fd=self.source)
    self.removed(path)
    return b""


def rmdir(self, node, body):
    path = self.child(node, names(body))
    os.rmdir(path, dir_fd=self.source)
    self.removed(path)
    return b""


def rename(self, node, body, skip=8):
    (into,) = struct.unpack_from("<Q", body)
    old, new = names(body, skip, 2)
    old, new = self.child(node, old), self.child(into, new)
    os.rename(old, new, src_dir_fd=self.source, dst_dir_fd=self.source)
    self.removed(new)
    self.moved(old, new)
    return b""


def rename2(self, node, body):
    if struct.unpack_from("<QI", body)[1]:
        raise OSError(errno.EINVAL, "no flags")
    return rename(self, node, body, 16)


def link(self, node, body):
    (what,) = struct.unpack_from("<Q", body)
    path = self.child(node, names(body, 8))
    os.link(self.paths[what], path, src_dir_fd=self.source, dst_dir_fd=self.source)
    return self.entry(path)


def open_(self, node, body):
    (flags,) = struct.unpack_from("<I", body)
    flags &= ~(os.O_CREAT | os.O_EXCL | os.O_NOCTTY | os.O_APPEND)  # the kernel gives offsets
    return self.opened(os.open(self.paths[node], flags | os.O_NOFOLLOW, dir_fd=self.source))


def create(self, node, body):
    flags, mode, mask, _ = struct.unpack_from("<IIII", body)
    path = self.child(node, names(body, 16))
    flags = (flags & ~os.O_APPEND) | os.O_CREAT | os.O_NOFOLLOW
    fd = os.open(path, flags, mode & ~mask, dir_fd=self.source)
    return self.entry(path) + self.opened(fd)


def read(self, node, body):
    handle, offset, size = struct.unpack_from("<QQI", body)
    return os.pread(handle, size, offset)


def write(self, node, body):
    handle, offset, size = struct.unpack_from("<QQI", body)
    return struct.pack("<II", os.pwrite(handle, body[40 : 40 + size], offset), 0)


def release(self, node, body):
    (handle,) = struct.unpack_from("<Q", body)
    os.close(handle)
    return b""


def open_directory(self, node, body):
    return bytes(16)


def nothing(self, node, body):
    return b""


def fsync(self, node, body):
    os.fsync(struct.unpack_from("<Q", body)[0])
    return b""


def statfs(self, node, body):
    s = os.statvfs(self.source)
    return struct.pack(
        "<5QIIII", s.f_blocks, s.f_bfree, s.f_bavail, s.f_files, s.f_ffree, s.f_bsize, 255,
        s.f_frsize, 0,
    ) + bytes(24)  # fmt: skip


def readdir(self, node, body):
    _, offset, size = struct.unpack_from("<QQI", body)
    path = self.paths[node]
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY, dir_fd=self.source)
    try:
        entries = [".", "..", *sorted(os.listdir(fd))]
    finally:
        os.close(fd)
    answer = b""
    for place, name in enumerate(entries[offset:], offset + 1):
        raw = os.fsencode(name)
        one = struct.pack("<QQII", place, place, len(raw), 0) + raw
        one += bytes(-len(one) % 8)
        if len(answer) + len(one) > size:
            break
        answer += one
    return answer


def access(self, node, body):
    (mask,) = struct.unpack_from("<I", body)
    if not os.access(self.paths[node], mask, dir_fd=self.source, effective_ids=True):
        raise PermissionError(errno.EACCES, "not allowed")
    return b""


_WITHOUT_ANSWER = {2, 36, 42}  # FORGET, INTERRUPT, BATCH_FORGET
OPERATIONS = {
    1: lookup, 3: getattr_, 4: setattr_, 5: readlink, 6: symlink, 8: mknod, 9: mkdir, 10: unlink,
    11: rmdir, 12: rename, 13: link, 14: open_, 15: read, 16: write, 17: statfs, 18: release,
    20: fsync, 25: nothing, 26: init, 27: open_directory, 28: readdir, 29: nothing, 30: nothing,
    34: access, 35: create, 45: rename2,
}  # fmt: skip


def main():
    source, target, *owner = sys.argv[1:]
    device = os.open("/dev/fuse", os.O_RDWR)
    serving = Squash(source, device)
    whose = (
        f"user_id={owner[0]},group_id={owner[0]}" if owner else "user_id=0,group_id=0,allow_other"
    )
    options = f"fd={device},rootmode=40000,{whose}"
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.mount(b"squash", target.encode(), b"fuse", _MS_NOSUID | _MS_NODEV, options.encode())
    if done:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), target)
    if os.fork() == 0:
        os.setsid()
        os.umask(0)
        nowhere = os.open("/dev/null", os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        serving.serve()


main()
