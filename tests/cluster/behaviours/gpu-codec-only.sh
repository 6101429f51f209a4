# Only the encoder of the GPU is busy.
# label: active
# card: wave encoder 1 1 50
# card: rates 0 0 50 0
sleep infinity
