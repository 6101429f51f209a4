# Only the bus to the GPU is busy (KiB per second).
# label: active
# card: pcie 4000000 1000
sleep infinity
