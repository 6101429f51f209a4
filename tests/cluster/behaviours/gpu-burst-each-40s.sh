# The GPU works for one second in forty, nothing else does.
# label: active
# card: wave gpu 40 1 97
sleep infinity
