# A child of a kernel that is idle computes.
# label: active
import subprocess

subprocess.Popen(["python3", "/shared/behaviours/burn.py", "0.15"])
