# Only the memory bus of the GPU is busy.
# label: active
# card: wave memory 1 1 35
# card: rates 0 35 0 0
sleep infinity
