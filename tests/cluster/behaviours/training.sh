# A training loop in a script: the GPU works, the script hardly does.
# label: active
# card: wave gpu 12 9 92
# card: wave memory 12 9 40
python3 burn.py 0.08
