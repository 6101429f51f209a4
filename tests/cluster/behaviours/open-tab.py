# A browser tab that was left open asks the server for its kernels and the kernel for its name.
# label: idle
# tab: 10
y = 1
