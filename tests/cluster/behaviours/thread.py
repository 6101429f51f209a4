# A thread computes in a kernel that is idle.
# label: active
import runpy
import sys
import threading

sys.argv = ["burn.py", "0.12"]
threading.Thread(target=runpy.run_path, args=("/shared/behaviours/burn.py",), daemon=True).start()
