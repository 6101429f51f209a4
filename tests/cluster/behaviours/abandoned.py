# A cell was run, and nobody came back.
# label: idle
x = [n * n for n in range(100000)]
