# A cell that waits for the answer of a scheduler elsewhere.
# label: active
# wait: no
import socket

s = socket.socket()
s.connect(("ctl", 6817))
s.settimeout(3600)
s.recv(1)
