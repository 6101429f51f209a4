# A cell that sleeps: silent, no CPU, the kernel is busy.
# label: active
# wait: no
import time

time.sleep(3600)
