# A GPU in MIG mode: its driver can't tell what its parts do.
# label: active
# card: mig 1
sleep infinity
