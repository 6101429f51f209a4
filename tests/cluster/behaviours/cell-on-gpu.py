# A cell that trains: GPU and kernel busy.
# label: active
# wait: no
# card: wave gpu 1 1 85
# card: wave memory 1 1 40
# card: rates 85 40 0 0
import time

time.sleep(3600)
